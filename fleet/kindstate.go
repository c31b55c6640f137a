package fleet

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KindState says how far a kind of a member is that a controller watches, or somebody reads.
type KindState struct {
	Kind metav1.GroupKind `json:"kind"`
	// State is "Synced", "Syncing" before the first list is complete, or "NotSynced".
	State string `json:"state"`
	// Failure says what fails of one that is not synced.
	Failure *NotSynced `json:"failure,omitempty"`
}

// Name returns the kind with its group, as in Deployment.apps.
func (k KindState) Name() string { return schema.GroupKind(k.Kind).String() }

// The values of [KindState.State].
const (
	kindSynced  = "Synced"
	kindSyncing = "Syncing"
)

// Kinds returns the kinds of a member that its engagement knows, ordered by name. It is nil for a member without an engagement.
func (f *Fleet) Kinds(name ClusterName) []KindState {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.members[name]
	if !ok || m.engagement == nil {
		return nil
	}
	return m.engagement.kinds.states()
}

// states returns all kinds with their states, ordered by name. One that is cached in several forms is synced when all are.
func (k *kinds) states() []KindState {
	of := map[schema.GroupKind]*KindState{}
	k.mu.RLock()
	for key, s := range k.of {
		gk := key.GVK.GroupKind()
		if of[gk] == nil {
			of[gk] = &KindState{Kind: metav1.GroupKind(gk), State: kindSynced}
		}
		if !s.mapped || s.informer != nil && !s.informer.HasSynced() {
			of[gk].State = kindSyncing
		}
	}
	k.mu.RUnlock()
	for _, n := range k.status() {
		of[schema.GroupKind(n.Kind)] = &KindState{Kind: n.Kind, State: ReasonNotSynced, Failure: &n}
	}
	all := make([]KindState, 0, len(of))
	for _, state := range of {
		all = append(all, *state)
	}
	slices.SortFunc(all, func(a, b KindState) int { return cmp.Compare(a.Name(), b.Name()) })
	return all
}
