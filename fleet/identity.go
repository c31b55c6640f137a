package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// ErrAnotherCluster is why an engagement ends when another cluster answers at the member's name. The cause of the
// engagement's context wraps it beside [ErrDisengaged].
var ErrAnotherCluster = errors.New("another cluster answers at the member's name")

// anotherClusterError says that a member's name leads to another cluster than before.
type anotherClusterError struct{ known, now string }

func (e *anotherClusterError) Error() string {
	return fmt.Sprintf("%v: %s, not %s", ErrAnotherCluster, called(e.now), called(e.known))
}

// Unwrap returns the sentinel.
func (*anotherClusterError) Unwrap() error { return ErrAnotherCluster }

// called names a cluster by its identity.
func called(identity string) string {
	if identity == "" {
		return "one of unknown identity"
	}
	return fmt.Sprintf("%.64q", identity)
}

// ReadIdentity reads which cluster it is that a reader reads from: the UID of its namespace kube-system. It is empty,
// without an error, where there is no such namespace, or no right to get it. The reader must ask the server, as
// cluster.Cluster.GetAPIReader does. Engaged members have theirs in [Engagement.Identity]; this is for the local cluster.
func ReadIdentity(ctx context.Context, reader client.Reader) (string, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	err := reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace)
	if err != nil && !isUnknown(err) {
		return "", identityError(err)
	}
	return plainIdentity(namespace.GetUID())
}

// maxIdentity is how long an identity may be that is read, in bytes. UIDs have 36.
const maxIdentity = 128

// plainIdentity returns a UID that a server has answered as an identity, which is shown and logged as it is.
func plainIdentity(uid types.UID) (string, error) {
	identity := string(uid)
	if strings.ContainsRune(identity, ' ') || oneline.Text(identity, maxIdentity) != identity {
		return "", identityError(errNoAPIServer)
	}
	return identity, nil
}

// isUnknown reports whether the answer means that the identity is not to be had: there is no right to it, or no such
// namespace. A server that refuses the credentials, or is busy, says nothing about that.
func isUnknown(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotAcceptable(err) || apierrors.IsBadRequest(err)
}

func identityError(err error) error {
	return fmt.Errorf("reading which cluster it is, by its namespace %s: %w", metav1.NamespaceSystem, err)
}

// identifier returns a function that reads the identity over a transport, without a client that would cost more than the
// request.
func identifier(cfg *rest.Config) func(context.Context, http.RoundTripper) (string, error) {
	q := newQuestion(cfg, "/api/v1/namespaces/"+metav1.NamespaceSystem, metadataAlone)
	return func(ctx context.Context, rt http.RoundTripper) (string, error) {
		answer, err := q.ask(ctx, rt)
		if isUnknown(err) && !apierrors.IsUnexpectedServerError(err) {
			return "", nil
		}
		if isUnknown(err) {
			return "", fmt.Errorf("%w: %v", errNotSaid, identityError(err)) //nolint:errorlint // it is no answer to what was asked
		}
		if err != nil {
			return "", identityError(err)
		}
		namespace := metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(answer, &namespace); err != nil || namespace.Name != metav1.NamespaceSystem || namespace.UID == "" {
			return "", identityError(errNoAPIServer)
		}
		return plainIdentity(namespace.UID)
	}
}

// errNotSaid says that what refuses to tell the identity does not answer as an API server does. It may be one without
// namespaces, and it may be a gateway that knows no way to the cluster, or not for now.
var errNotSaid = errors.New("what answers does not say which cluster it is")

// orUnknown takes an identity that is not said for unknown, unless it is known already: that is not another cluster.
func orUnknown(known, now string, err error) (string, error) {
	if known == "" && errors.Is(err, errNotSaid) {
		return "", nil
	}
	return now, err
}

// metadataAlone asks for the metadata of an object, and for all of it where a server knows no such answer.
const metadataAlone = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// errNoAPIServer says that something answers that is not an API server, such as a web page.
var errNoAPIServer = errors.New("what answers is not an API server of Kubernetes")

// identities keeps which engagements there are with each cluster, ordered by the names of their members. The fleet's lock
// guards it.
type identities map[string][]*Engagement

// mostDuplicates is how many duplicates of a member are told. Many members may be one cluster, and each change of one would
// name all the others again.
const mostDuplicates = 10

func (i identities) placeLocked(e *Engagement) int {
	at, _ := slices.BinarySearchFunc(i[e.identity], e.name, func(other *Engagement, name ClusterName) int {
		return cmp.Compare(other.name, name)
	})
	return at
}

// identifiedLocked notes that an engagement is published.
func (f *Fleet) identifiedLocked(e *Engagement) {
	if e.identity == "" {
		return
	}
	at := f.identities.placeLocked(e)
	f.identities[e.identity] = slices.Insert(f.identities[e.identity], at, e)
	f.twinsChangedLocked(e, at)
	f.tellTwinsLocked(e.identity)
}

// notIdentifiedLocked notes that an engagement is over.
func (f *Fleet) notIdentifiedLocked(e *Engagement) {
	if e.identity == "" {
		return
	}
	at := f.identities.placeLocked(e)
	left := slices.DeleteFunc(f.identities[e.identity], func(other *Engagement) bool { return other == e })
	f.identities[e.identity] = left
	if len(left) == 0 {
		delete(f.identities, e.identity)
	}
	f.twinsChangedLocked(e, at)
	f.tellTwinsLocked(e.identity)
}

// tellTwinsLocked keeps the problem that says which members are one cluster.
func (f *Fleet) tellTwinsLocked(identity string) {
	p := Problem{Provider: fleetItself, About: "cluster " + identity}
	if twins := f.identities[identity]; len(twins) > 0 && twins[0].name != twins[len(twins)-1].name {
		p.Reason, p.Message = ReasonDuplicate, fmt.Sprintf("the members %s are one cluster: its objects are reconciled once for each. "+
			"Remove all but one, or set fleet.Options.RefuseDuplicates", namesOf(twins))
	}
	f.problems.set(f.opts.Logger, p)
}

// namesOf lists the members of engagements, which are ordered by name. One that is about to be replaced counts twice for a
// moment.
func namesOf(twins []*Engagement) string {
	names := make([]string, 0, mostDuplicates)
	for _, e := range twins[:min(len(twins), mostDuplicates)] {
		if name := strconv.Quote(string(e.name)); len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	if more := len(twins) - mostDuplicates; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}

// twinsChangedLocked tells that the others have a duplicate more or less, unless their status does not name that one.
func (f *Fleet) twinsChangedLocked(e *Engagement, at int) {
	if at > mostDuplicates {
		return
	}
	for _, twin := range f.identities[e.identity] {
		if twin.name != e.name {
			f.changedLocked(twin.name)
		}
	}
}

// othersLocked returns the first other members that are the same cluster, in order.
func (i identities) othersLocked(e *Engagement) []ClusterName {
	var others []ClusterName
	for _, other := range i[e.identity] {
		if len(others) == mostDuplicates {
			break
		}
		if other.name != e.name {
			others = append(others, other.name)
		}
	}
	return others
}

// duplicateError says that a member is the same cluster as another one.
type duplicateError struct{ of ClusterName }

func (e *duplicateError) Error() string {
	return fmt.Sprintf("it is the same cluster as the member %q, and Options.RefuseDuplicates is set: remove one of them", e.of)
}
