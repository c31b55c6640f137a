package mcowner

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SetControllerReference makes owner the controller of a dependent in a cluster: it sets the annotation and the
// labels, which are stored once the dependent is created or updated. If both are in the same cluster, and in namespaces
// where that is allowed, the native owner reference is set as well, so that Kubernetes' garbage collection does its part. It is
// taken away if [DeletionPolicyAnnotation] on the dependent says Orphan: garbage collection would delete the dependent.
//
// It returns an [AlreadyOwnedError], and changes nothing, if the dependent has another controller, be it in this cluster
// or in another, or belongs to another fleet; an error that wraps [ErrMalformed] if it has a reference that cannot be
// read; and one that wraps [ErrInvalid] if owner cannot be written, or it is not said which cluster this is. A reference to an owner that owner succeeds is
// replaced, see [Reference.Succeeds]; so a cluster of the same name that is known to be another takes nothing over.
//
// The reference says of which kind the dependent is if that says it itself, which objects of Go types often do not: set the kind before,
// and a copy in another kind is not taken for the dependent. What a reference to the same owner already says of the kind, and of which
// clusters these are, is kept where dependent, owner and in do not say it.
func SetControllerReference(owner Reference, dependent client.Object, in ClusterID) error {
	owner.Controller = true
	return set(owner, dependent, in)
}

// SetOwnerReference adds an owner that is not the controller. See [SetControllerReference], whose errors it returns
// except that the dependent may have any controller of the same fleet.
func SetOwnerReference(owner Reference, dependent client.Object, in ClusterID) error {
	owner.Controller = false
	return set(owner, dependent, in)
}

func set(owner Reference, dependent client.Object, in ClusterID) error {
	if err := owner.validate(); err != nil {
		return err
	}
	if err := in.validate(); err != nil {
		return err
	}
	if err := mayBeSet(owner, dependent, in); err != nil {
		return err
	}
	owner.Dependent = locate(dependent, in)
	owner.keepKnown(dependent, in)
	content, err := json.Marshal(owner)
	if err != nil {
		return fmt.Errorf("%w to %s: %w", ErrInvalid, owner, err)
	}
	dependent.SetAnnotations(with(dependent.GetAnnotations(), owner.Key(), string(content)))
	dependent.SetLabels(with(dependent.GetLabels(), owner.Key(), owner.Manager))
	dependent.SetLabels(with(dependent.GetLabels(), FleetLabel, owner.Fleet))
	if _, labelled := dependent.GetLabels()[OwnerClusterLabel]; owner.Controller || !labelled {
		dependent.SetLabels(with(dependent.GetLabels(), OwnerClusterLabel, OwnerClusterValue(owner.Cluster)))
	}
	switch {
	case dependent.GetAnnotations()[DeletionPolicyAnnotation] == string(metav1.DeletePropagationOrphan):
		removeNative(owner, dependent)
	case owner.reachesNatively(dependent, in):
		setNative(owner, dependent)
	}
	return nil
}

// keepKnown takes over which clusters these are, and of which kind the dependent is, from what that says of the same owner already. So a
// program that may no longer read them does not forget them.
func (r *Reference) keepKnown(dependent client.Object, in ClusterID) {
	before, err := parse(r.Key(), dependent.GetAnnotations()[r.Key()])
	if err != nil || !before.Same(*r) || !before.isFor(dependent, in) {
		return
	}
	r.ClusterUID = cmp.Or(r.ClusterUID, before.ClusterUID)
	r.Dependent.ClusterUID = cmp.Or(r.Dependent.ClusterUID, before.Dependent.ClusterUID)
	if r.Dependent.Kind == "" {
		r.Dependent.Group, r.Dependent.Kind = before.Dependent.Group, before.Dependent.Kind
	}
}

// mayBeSet returns why the owner must not be set.
func mayBeSet(owner Reference, dependent client.Object, in ClusterID) error {
	references, err := References(dependent, in)
	if err != nil {
		return err
	}
	if fleet := dependent.GetLabels()[FleetLabel]; fleet != "" && fleet != owner.Fleet {
		return &AlreadyOwnedError{Dependent: locate(dependent, in), Fleet: fleet}
	}
	for _, r := range references {
		if r.Fleet != "" && r.Fleet != owner.Fleet {
			return &AlreadyOwnedError{Dependent: locate(dependent, in), Fleet: r.Fleet}
		}
		if r.Key() == owner.Key() && !owner.Succeeds(r) {
			return &AlreadyOwnedError{Dependent: locate(dependent, in), Owner: &r, Now: &owner}
		}
		if owner.Controller && r.Controller && !r.Same(owner) && r.Key() != owner.Key() {
			return &AlreadyOwnedError{Dependent: locate(dependent, in), Owner: &r}
		}
	}
	native := metav1.GetControllerOfNoCopy(dependent)
	itself := native != nil && owner.reachesNatively(dependent, in) && owner.isNative(*native, in)
	if owner.Controller && native != nil && !itself {
		return &AlreadyOwnedError{Dependent: locate(dependent, in), Native: native.DeepCopy()}
	}
	return nil
}

// AlreadyOwnedError is returned for a dependent that belongs to somebody else. One of Owner, Native and Fleet says to
// whom.
type AlreadyOwnedError struct {
	Dependent Location
	// Owner is the controller, in whatever cluster.
	Owner *Reference
	// Now is the owner that has the key of Owner now, if it is not known to succeed it: the clusters have one name, and are
	// two. It is nil otherwise.
	Now *Reference
	// Native is the controller in the dependent's own cluster.
	Native *metav1.OwnerReference
	// Fleet is another installation.
	Fleet string
}

func (e *AlreadyOwnedError) Error() string {
	what := fmt.Sprintf("%s of cluster %q", client.ObjectKey{Namespace: e.Dependent.Namespace, Name: e.Dependent.Name}, e.Dependent.Cluster)
	switch {
	case e.Owner != nil && e.Now != nil:
		return fmt.Sprintf("%s belongs to %s of another cluster of that name: of %s, and here it is %s. "+
			"If two installations have the same name, give one another. If the cluster's credentials lead to the wrong one, mend them. "+
			"If it was replaced for good, delete the object, or its annotation %s if it is to stay",
			what, e.Owner, called(e.Owner.ClusterUID), called(e.Now.ClusterUID), e.Owner.Key())
	case e.Owner != nil:
		return fmt.Sprintf("%s is controlled by %s", what, e.Owner)
	case e.Native != nil:
		return fmt.Sprintf("%s is controlled by the %s %s there", what, e.Native.Kind, e.Native.Name)
	default:
		return fmt.Sprintf("%s belongs to the fleet %q", what, e.Fleet)
	}
}

// called names a cluster by its identity, for messages.
func called(identity types.UID) string {
	if identity == "" {
		return "unknown identity, as without the right to get the namespace kube-system"
	}
	return fmt.Sprintf("the identity %.64q", string(identity))
}

// RemoveReference takes an owner from a dependent, by the owner's key, and leaves other owners. It does the reverse of
// [SetControllerReference], and takes references of other systems to the same owner as well.
func RemoveReference(owner Reference, dependent client.Object) {
	dependent.SetAnnotations(without(dependent.GetAnnotations(), owner.Key()))
	dependent.SetLabels(without(dependent.GetLabels(), owner.Key()))
	if r, err := admiraltyReference(dependent); err == nil && r != nil && r.Same(owner) {
		dependent.SetAnnotations(without(dependent.GetAnnotations(), admiraltyAnnotation))
	}
	if hasKey(dependent.GetAnnotations()) {
		relabel(dependent)
	} else {
		dependent.SetLabels(without(without(dependent.GetLabels(), FleetLabel), OwnerClusterLabel))
		if dependent.GetAnnotations()[AdoptedAnnotation] != "" {
			dependent.SetAnnotations(without(without(dependent.GetAnnotations(), AdoptedAnnotation), DeletionPolicyAnnotation))
		}
		dependent.SetAnnotations(without(without(dependent.GetAnnotations(), DesiredAnnotation), CreatedByAnnotation))
	}
	removeNative(owner, dependent)
}

// relabel labels a dependent with the cluster of an owner that it still has.
func relabel(dependent client.Object) {
	var clusters []string
	annotations := dependent.GetAnnotations()
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if r, err := parse(key, annotations[key]); err == nil {
			clusters = append(clusters, OwnerClusterValue(r.Cluster))
		}
	}
	if len(clusters) > 0 && !slices.Contains(clusters, dependent.GetLabels()[OwnerClusterLabel]) {
		dependent.SetLabels(with(dependent.GetLabels(), OwnerClusterLabel, clusters[0]))
	}
}

func removeNative(owner Reference, dependent client.Object) {
	natives := slices.DeleteFunc(slices.Clone(dependent.GetOwnerReferences()), func(n metav1.OwnerReference) bool { return n.UID == owner.UID })
	dependent.SetOwnerReferences(natives)
}

// reachesNatively reports whether a native owner reference may point from the dependent to the owner.
func (r Reference) reachesNatively(dependent client.Object, in ClusterID) bool {
	return r.Cluster == in.Name && (r.Namespace == "" || r.Namespace == dependent.GetNamespace())
}

// isNative reports whether a native reference of an object in the named cluster is to the same owner.
func (r Reference) isNative(native metav1.OwnerReference, in ClusterID) bool {
	of := Reference{APIVersion: native.APIVersion, Kind: native.Kind}
	return r.Cluster == in.Name && r.Name == native.Name && r.GroupKind() == of.GroupKind()
}

func setNative(owner Reference, dependent client.Object) {
	native := metav1.OwnerReference{
		APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID,
		BlockOwnerDeletion: new(true),
	}
	if owner.Controller {
		native.Controller = new(true)
	}
	others := slices.DeleteFunc(slices.Clone(dependent.GetOwnerReferences()), func(n metav1.OwnerReference) bool {
		return owner.isNative(n, ClusterID{Name: owner.Cluster})
	})
	dependent.SetOwnerReferences(append(others, native))
}

func locate(dependent client.Object, in ClusterID) Location {
	said := dependent.GetObjectKind().GroupVersionKind()
	return Location{
		Cluster: in.Name, ClusterUID: in.UID, Group: said.Group, Kind: said.Kind,
		Namespace: dependent.GetNamespace(), Name: dependent.GetName(),
	}
}

// ErrMalformed is returned for a dependent with a reference that cannot be read, as somebody has written to it. Such an
// object is nobody's: whoever meets it leaves it alone.
var ErrMalformed = errors.New("malformed owner reference")
