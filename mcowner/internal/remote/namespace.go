package remote

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// ErrEmptying says that what is left in a namespace is about to go: it is being deleted, or its controller in the namespace is, or is gone, or its
// owners are.
var ErrEmptying = errors.New("what was in it has not gone yet")

// isNamespace reports whether a kind is that of namespaces.
func isNamespace(k Kind) bool { return k.GroupKind() == schema.GroupKind{Kind: "Namespace"} }

// IsCreated reports whether an object is a namespace that was created for dependents.
func IsCreated(k Kind, obj client.Object) bool {
	return isNamespace(k) && obj.GetAnnotations()[mcowner.CreatedByAnnotation] != ""
}

// AdoptedSeal ends what mcowner.DesiredAnnotation says of what was there before it became an owner's: the mark alone could be taken.
const AdoptedSeal = ".adopted"

// WasAdopted reports whether an object was there before it became an owner's.
func WasAdopted(obj client.Object) bool {
	said := obj.GetAnnotations()
	return said[mcowner.AdoptedAnnotation] != "" || strings.HasSuffix(said[mcowner.DesiredAnnotation], AdoptedSeal)
}

// isUnmarked reports whether an object does not say any more what is to become of it: it was there before its owners, or is a namespace that
// they share. It may be somebody's by now. With a controller among the owners that has made it, a namespace is a dependent like any other.
func isUnmarked(k Kind, obj client.Object, owners []mcowner.Reference) bool {
	switch {
	case IsCreated(k, obj):
		return false
	case WasAdopted(obj):
		return true
	default:
		return isNamespace(k) && !slices.ContainsFunc(owners, func(r mcowner.Reference) bool { return r.Controller })
	}
}

// errOfOthers says that a namespace has something of others.
var errOfOthers = errors.New("there is something of others")

// Look is how it is seen whether a namespace is empty.
type Look struct {
	Before func(context.Context) error // each of the many requests, if it is not nil
	Gone   []mcowner.Reference         // what is of these owners alone is about to go, and what is of others may be desired
}

// isEmpty reports whether a namespace has nothing in it, but for what Kubernetes itself puts there. It lists every kind that is
// namespaced. What cannot be listed proves nothing, and the answer is false. The error wraps ErrEmptying if the rest is about to go.
func (l Look) isEmpty(ctx context.Context, a *Access, at Session, namespace string) (empty bool, err error) {
	if l.Before != nil {
		if err := l.Before(ctx); err != nil {
			return false, err
		}
	}
	kinds, err := namespacedKinds(ctx, a, at)
	if discovery.IsGroupDiscoveryFailedError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	left := remains{kinds: kinds, in: at.ID, gone: l.Gone}
	left.isServed = func(gvk schema.GroupVersionKind) bool { return !a.IsUnserved(at, Kind{GroupVersionKind: gvk}) }
	for _, k := range kinds {
		switch {
		case isRecord(k.GroupKind()):
			continue
		case !k.listed:
			return false, nil
		}
		options := client.ListOptions{Namespace: namespace, Limit: DefaultPageSize}
		see := func(obj *metav1.PartialObjectMetadata) error { return left.see(k.GroupKind(), obj) }
		err := Scan{Before: l.Before}.eachIn(ctx, a, at, Kind{GroupVersionKind: k.GroupVersionKind}, options, see)
		if errors.Is(err, errOfOthers) || errors.Is(err, errUnserved) || errors.Is(err, ErrEndless) ||
			apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	switch {
	case left.stay():
		return false, nil
	case left.going != "":
		return false, fmt.Errorf("objects of the kind %s and maybe others: %w", left.going, ErrEmptying)
	default:
		return true, nil
	}
}

// remains are what was found in a namespace.
type remains struct {
	kinds    []namespacedKind
	in       mcowner.ClusterID
	gone     []mcowner.Reference
	isServed func(schema.GroupVersionKind) bool
	going    string // a kind of which something is about to go, and not its name, which may be another tenant's business

	// controllers are those of what is not being deleted. What Kubernetes puts there is its own. Hashes stand for UIDs: references say
	// any, however long.
	controllers map[uint64]uint64
	seed        maphash.Seed
}

// mostControlled is how many objects are remembered: some megabytes. What is there besides is taken for what goes, and looked at when there is less.
const mostControlled = 100_000

// see notes an object of a kind. The error is errOfOthers if it stays, whatever else is there.
func (r *remains) see(kind schema.GroupKind, obj *metav1.PartialObjectMetadata) error {
	isDeleted, controller := !obj.DeletionTimestamp.IsZero(), r.controllerOf(obj)
	switch {
	case isOfKubernetes(kind, obj) && isDeleted:
		return nil
	case isOfKubernetes(kind, obj):
		r.note(obj.UID, obj.UID)
		return nil
	case isDeleted, r.isOrphan(obj):
	case controller == obj.UID:
		return errOfOthers
	default:
		r.note(obj.UID, controller)
	}
	r.going = kind.String()
	return nil
}

// isOrphan reports whether a collector finds an object, and deletes it, as its owners are gone.
func (r *remains) isOrphan(obj *metav1.PartialObjectMetadata) bool {
	owners, err := mcowner.References(obj, r.in)
	if err != nil || len(owners) == 0 {
		return false
	}
	for _, owner := range owners {
		isGone := slices.ContainsFunc(r.gone, owner.Same)
		if !isGone || owner.Fleet == "" || owner.Fleet != obj.Labels[mcowner.FleetLabel] {
			return false
		}
	}
	_, goes := release(Kind{GroupVersionKind: obj.GroupVersionKind()}, obj, r.in, owners)
	return goes
}

// controllerOf returns the UID of an object's controller in the namespace, or its own if it has none that Kubernetes' garbage collector would miss
// there, and that is looked at.
func (r *remains) controllerOf(obj *metav1.PartialObjectMetadata) types.UID {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return obj.UID
	}
	gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	isLookedAt := slices.ContainsFunc(r.kinds, func(k namespacedKind) bool { return k.GroupKind() == gvk.GroupKind() && !isRecord(k.GroupKind()) })
	if !isLookedAt || !r.isServed(gvk) {
		return obj.UID
	}
	return owner.UID
}

func (r *remains) note(object, controller types.UID) {
	if r.controllers == nil {
		r.controllers, r.seed = map[uint64]uint64{}, maphash.MakeSeed()
	}
	if len(r.controllers) < mostControlled {
		r.controllers[maphash.String(r.seed, string(object))] = maphash.String(r.seed, string(controller))
	}
}

// stay reports whether something stays, as its controller does, or as objects control each other. What goes is forgotten: it is being
// deleted, or its controller goes, or is gone.
func (r *remains) stay() bool {
	for object, controller := range r.controllers {
		if controller == object {
			continue
		}
		var goes []uint64
		for at := object; ; {
			next, is := r.controllers[at]
			if !is {
				break
			}
			if next == at || len(goes) > len(r.controllers) {
				return true
			}
			goes, at = append(goes, at), next
		}
		for _, object := range goes {
			delete(r.controllers, object)
		}
	}
	return false
}

// namespacedKind is one whose objects are in namespaces.
type namespacedKind struct {
	schema.GroupVersionKind

	listed bool // it can be
}

// errNoCore says that a cluster has not named Kubernetes' own kinds: the client takes a page of 404 for none.
var errNoCore = errors.New("asking for the kinds that there may be: the API server does not name those of the core API")

// namespacedKinds asks what there may be in a namespace: what can be created by a request, and stays.
func namespacedKinds(ctx context.Context, a *Access, at Session) ([]namespacedKind, error) {
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	d, err := discovery.NewDiscoveryClientForConfigAndClient(at.Cluster.GetConfig(), at.Cluster.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	lists, err := d.ServerPreferredNamespacedResourcesWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the kinds that there may be: %w", err)
	}
	if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "v1" }) {
		return nil, errNoCore
	}
	var kinds []namespacedKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			listed := slices.Contains(r.Verbs, "list")
			if listed || slices.Contains(r.Verbs, "get") || slices.Contains(r.Verbs, "delete") { // others are questions, not objects
				kinds = append(kinds, namespacedKind{gv.WithKind(r.Kind), listed})
			}
		}
	}
	return kinds, nil
}

// isOfKubernetes reports whether Kubernetes itself puts an object into each namespace, or derives it from another object there.
func isOfKubernetes(kind schema.GroupKind, obj *metav1.PartialObjectMetadata) bool {
	switch kind {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return obj.Name == "kube-root-ca.crt"
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return obj.Name == "default"
	case schema.GroupKind{Kind: "Secret"}: // the token of that, before Kubernetes 1.24; users give theirs other names
		return obj.Annotations[corev1.ServiceAccountNameKey] == "default" && strings.HasPrefix(obj.Name, "default-token-")
	case schema.GroupKind{Kind: "Endpoints"}: // of a Service, which is listed itself
		return obj.Annotations[corev1.EndpointsLastChangeTriggerTime] != "" || obj.Labels["endpoints.kubernetes.io/managed-by"] != ""
	default:
		return false
	}
}

// isRecord reports whether objects of a kind say what has happened to others, or how they are. They go with these.
func isRecord(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}:
		return true
	default:
		return kind.Group == "metrics.k8s.io"
	}
}
