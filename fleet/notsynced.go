package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// NotSynced says why a kind is not synced in a member.
type NotSynced struct {
	Kind metav1.GroupKind `json:"kind"`
	// Reason is one of the words that a [Status] may have as its Reason.
	Reason string `json:"reason"`
	// Since is when it began to fail. The reason may have been another one then.
	Since time.Time `json:"since"`
	// Message is the reason in full, without secrets.
	Message string `json:"message"`
}

// String returns kind, reason and message.
func (n NotSynced) String() string { return n.Name() + ": " + n.Reason + ": " + n.Message }

// Name returns the kind with its group, as in Deployment.apps.
func (n NotSynced) Name() string { return schema.GroupKind(n.Kind).String() }

func reasonOf(f *failure) string {
	if f == nil {
		return ""
	}
	return classify(f.why)
}

// failureLocked returns what fails longest of a kind, in any version and form, or nil.
func (k *kinds) failureLocked(gk schema.GroupKind) (longest *failure) {
	for key, s := range k.of {
		if len(s.failing) > 0 && key.GVK.GroupKind() == gk {
			longest = older(longest, s.oldest(mapping, listing, watching, indexing))
		}
	}
	return longest
}

func (s *kind) oldest(of ...stage) (oldest *failure) {
	for at, f := range s.failing {
		if slices.Contains(of, at.what) {
			oldest = older(oldest, &f)
		}
	}
	return oldest
}

func older(a, b *failure) *failure {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case cmp.Or(a.since.Compare(b.since), cmp.Compare(a.why.Error(), b.why.Error())) <= 0:
		return a
	default:
		return b
	}
}

// status returns what fails, ordered by kind, nil if nothing does.
func (k *kinds) status() []NotSynced {
	k.mu.RLock()
	defer k.mu.RUnlock()
	longest := map[schema.GroupKind]*failure{}
	for key, s := range k.of {
		if f := s.oldest(mapping, listing, watching, indexing); f != nil {
			longest[key.GVK.GroupKind()] = older(longest[key.GVK.GroupKind()], f)
		}
	}
	if len(longest) == 0 {
		return nil
	}
	out := make([]NotSynced, 0, len(longest))
	for gk, f := range longest {
		out = append(out, NotSynced{Kind: metav1.GroupKind(gk), Reason: classify(f.why), Since: f.since, Message: message(f.why)})
	}
	slices.SortFunc(out, func(a, b NotSynced) int { return cmp.Compare(a.Name(), b.Name()) })
	return out
}

func (k *kinds) notSyncedLocked(key informer.Key, s *kind, why error) error {
	return &notSyncedError{cluster: k.cluster, kind: key.GVK.GroupKind(), why: why, tried: s.mapped || s.waiting > 0}
}

// notSyncedError says that a kind cannot be read from a member's cache. It is an [ErrNotReady].
type notSyncedError struct {
	cluster ClusterName
	kind    schema.GroupKind
	why     error
	tried   bool
}

func (e *notSyncedError) Error() string {
	return fmt.Sprintf("reading %s of cluster %q: %v: %v", e.kind, e.cluster, ErrNotReady, e.why)
}

// Is makes it an ErrNotReady.
func (*notSyncedError) Is(target error) bool { return target == ErrNotReady }

// NotSynced returns what cannot be read. Controllers that mcbuilder builds wait for that.
func (e *notSyncedError) NotSynced() (ClusterName, schema.GroupKind) { return e.cluster, e.kind }

// IsTried reports whether a source goes on trying, so that the member's status tells when the kind is synced. Else it is tried when
// somebody reads it.
func (e *notSyncedError) IsTried() bool { return e.tried }

// Unwrap returns why the kind is not synced.
func (e *notSyncedError) Unwrap() error { return e.why }

func notSyncedMessage(all []NotSynced) string {
	lines := make([]string, len(all))
	for i, n := range all {
		lines[i] = n.String()
	}
	return strings.Join(lines, "; ")
}
