package dependents

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatIsDesiredInAnotherGroupMayBeChanged, if it is this owner's there.
func TestWhatIsDesiredInAnotherGroupMayBeChanged(t *testing.T) {
	t.Parallel()
	event := remote.Kind{GroupVersionKind: eventsv1.SchemeGroupVersion.WithKind("Event")}
	inOld, secret := corev1.SchemeGroupVersion.WithKind("Event"), corev1.SchemeGroupVersion.WithKind("Secret")
	native := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "2", Controller: new(true)}
	own := native
	own.UID = ownerNamed("a").UID
	for name, tc := range map[string]struct {
		written schema.GroupVersionKind
		owner   mcowner.Reference
		natives []metav1.OwnerReference
		policy  Policy
		may     bool
	}{
		"its own":                        {written: event.GroupVersionKind, owner: ownerNamed("a"), may: true},
		"its own in the other group":     {written: inOld, owner: ownerNamed("a"), may: true},
		"natively too":                   {written: inOld, owner: ownerNamed("a"), natives: []metav1.OwnerReference{own}, may: true},
		"with a native controller":       {written: inOld, owner: ownerNamed("a"), natives: []metav1.OwnerReference{native}},
		"in another kind":                {written: secret, owner: ownerNamed("a")},
		"another owner's there":          {written: inOld, owner: ownerNamed("b"), policy: Policy{Conflict: Adopt}},
		"that of the owner before there": {written: inOld, owner: ownerNamed("a", func(r *mcowner.Reference) { r.UID = "0" }), policy: Policy{Conflict: Adopt}},
	} {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-copy", UID: "9"}}
		obj.SetGroupVersionKind(tc.written)
		if err := mcowner.SetControllerReference(tc.owner, obj, at); err != nil {
			t.Fatal(err)
		}
		obj.SetGroupVersionKind(event.GroupVersionKind)
		obj.OwnerReferences = tc.natives
		p := placing()
		err := p.mayChange(t.Context(), wanted{kind: event, Policy: tc.policy}, obj)
		if _, is := errors.AsType[*ConflictError](err); is == tc.may {
			t.Errorf("%s: it may not be changed: %v", name, err)
		}
		if own := p.isOwn(event, obj); own != (tc.may && err == nil) {
			t.Errorf("%s: it is its own: %t", name, own)
		}
	}
}

// TestWhatIsDesiredInOneGroupIsNotPrunedInAnother, also while it is not written, as others change it back: it has no place in a list of what goes.
func TestWhatIsDesiredInOneGroupIsNotPrunedInAnother(t *testing.T) {
	t.Parallel()
	p, done := placing(), &report{Result: Result{Objects: []ObjectResult{{UID: "9"}}}}
	p.o = newOwnerState(mcreconcile.Request{}, "1")
	found := []dependent{{remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Event")}, owned(t, ownerNamed("a"))}}
	if err := p.prune(t.Context(), found, nil, done); err != nil || len(done.Objects) != 1 { // without a writer, anything else panics
		t.Errorf("it was pruned: %v, %v", err, done.Objects)
	}
}
