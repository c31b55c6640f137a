package dependents

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Policy says what is done about a dependent where there is a choice. The zero value is the safe choice of each. A [Reconciler]
// has one for all dependents; annotations of what Desired returns override it for single ones.
type Policy struct {
	// Conflict says what is done if an object that is not this owner's has the place of a dependent. Annotation:
	// [ConflictAnnotation].
	Conflict ConflictPolicy
	// Change says what is done about a dependent that is not as desired. Annotation: [ChangeAnnotation].
	Change ChangePolicy
	// Immutable says what is done if the API server refuses a change, since a field cannot be changed. Annotation:
	// [ImmutableAnnotation].
	Immutable ImmutablePolicy
	// Keep lets dependents stay, without the reference, when they are no longer desired, or their owner goes. Annotation:
	// [DeletionPolicyAnnotation] with the value Orphan.
	Keep bool
	// Suspend writes nothing, but takes the native owner reference from what is to stay; what is not as desired shows in the results. What is not desired is removed all the same,
	// unless something is desired in that cluster that is not as it is to be: it may take the other's place.
	// Annotation: [SuspendAnnotation] with the value true, on what Desired returns or on the owner; with the value false, on
	// what Desired returns.
	Suspend bool
	// ExistingNamespaces creates no namespaces, where [Reconciler.CreateNamespaces] does.
	ExistingNamespaces bool
}

// Annotations of what Desired returns, which override a [Policy].
const (
	ConflictAnnotation  = "fleet-runtime.dev/conflict-policy"
	ChangeAnnotation    = "fleet-runtime.dev/change-policy"
	ImmutableAnnotation = "fleet-runtime.dev/immutable-policy"
	SuspendAnnotation   = "fleet-runtime.dev/suspend"
)

// ConflictPolicy says what is done about an object that has the place of a dependent.
type ConflictPolicy string

// The policies of conflicts. What has a native controller, or belongs to another installation, is never taken.
const (
	// Fail leaves it alone, and shows a ConflictError. It is the default.
	Fail ConflictPolicy = "Fail"
	// AdoptUnowned takes it over if nobody controls it. The owner itself is never taken: where Target.Home is true, a copy of its name is a conflict.
	AdoptUnowned ConflictPolicy = "AdoptUnowned"
	// Adopt takes it over also if another owner of the same installation controls it, which loses it. Two owners that both
	// adopt take it from each other for ever. With Reconciler.User, it is not taken from an owner in another cluster, or of another user.
	// An owner in a cluster of another identity than that of its name here is another installation's.
	Adopt ConflictPolicy = "Adopt"
)

// ChangePolicy says what is done about a dependent that is not as desired.
type ChangePolicy string

// The policies of changes.
const (
	// Apply makes it as desired. It is the default.
	Apply ChangePolicy = "Apply"
	// CreateOnly leaves it as it is, once it is there and the owner's. Labels of the reference that it has lost are put back.
	CreateOnly ChangePolicy = "CreateOnly"
)

// ImmutablePolicy says what is done if a field cannot be changed.
type ImmutablePolicy string

// The policies of fields that cannot be changed.
const (
	// Refuse shows the error. It is the default.
	Refuse ImmutablePolicy = "Refuse"
	// Recreate deletes the dependent, and creates it anew: if the API server would take the new one, and nobody else owns it. API servers do
	// not tell a field that cannot be changed from another change that they refuse, so what holds more than itself is created anew only if its
	// own annotation says so: Namespaces, CustomResourceDefinitions, PersistentVolumeClaims and PersistentVolumes.
	Recreate ImmutablePolicy = "Recreate"
)

func (p Policy) validate() error {
	return errors.Join(
		oneOf("Policy.Conflict", p.Conflict, Fail, AdoptUnowned, Adopt),
		oneOf("Policy.Change", p.Change, Apply, CreateOnly),
		oneOf("Policy.Immutable", p.Immutable, Refuse, Recreate),
	)
}

func oneOf[T ~string](what string, value T, values ...T) error {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	return fmt.Errorf("%s is %.64q, and must be one of %q", what, string(value), values)
}

// of returns the policy for an object that is desired.
func (p Policy) of(owner, obj client.Object) (Policy, error) {
	annotations := obj.GetAnnotations()
	var deletion metav1.DeletionPropagation
	var onOwner, onThis yesOrNo
	err := errors.Join(
		override(&p.Conflict, annotations, ConflictAnnotation, Fail, AdoptUnowned, Adopt),
		override(&p.Change, annotations, ChangeAnnotation, Apply, CreateOnly),
		override(&p.Immutable, annotations, ImmutableAnnotation, Refuse, Recreate),
		override(&deletion, annotations, DeletionPolicyAnnotation,
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan),
		override(&onOwner, owner.GetAnnotations(), SuspendAnnotation, yes, no),
		override(&onThis, annotations, SuspendAnnotation, yes, no),
	)
	p.Suspend = onThis == yes || onThis == "" && (p.Suspend || onOwner == yes)
	return p, err
}

type yesOrNo string

const yes, no yesOrNo = "true", "false"

// override sets a value to what an annotation says.
func override[T ~string](value *T, annotations map[string]string, key string, values ...T) error {
	said := T(annotations[key])
	if said != "" {
		*value = said
	}
	return oneOf("the annotation "+key, said, values...)
}

// LeavePolicy says what becomes of dependents when a cluster is given up in good order.
type LeavePolicy string

// The policies of leaving.
const (
	// LeaveAsIs lets dependents stay as they are, with the reference: if the cluster is back, they are the owner's as before.
	// The owner does not wait for them any more.
	LeaveAsIs LeavePolicy = "AsIs"
	// LeaveReleased lets them stay without the reference, as nobody's.
	LeaveReleased LeavePolicy = "Released"
	// LeaveDeleted deletes them.
	LeaveDeleted LeavePolicy = "Deleted"
)

// propagation returns how dependents are removed, nothing if they stay as they are.
func (p LeavePolicy) propagation() metav1.DeletionPropagation {
	switch p {
	case LeaveReleased:
		return metav1.DeletePropagationOrphan
	case LeaveDeleted:
		return metav1.DeletePropagationBackground
	case LeaveAsIs:
		return ""
	default:
		return ""
	}
}
