package mcowner_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// anyKind returns an object that says that it is of a kind, or none.
func anyKind(kind schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "settings"}}
	obj.SetGroupVersionKind(kind)
	return obj
}

// TestACopyInAnotherKindHasNoOwner. What does not say its kind may be of any.
func TestACopyInAnotherKindHasNoOwner(t *testing.T) {
	unsaid := schema.GroupVersionKind{}
	configMap, secret := corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret")
	coreEvent, event := corev1.SchemeGroupVersion.WithKind("Event"), schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
	older := event
	older.Version = "v1beta1"
	for name, tc := range map[string]struct {
		written, read schema.GroupVersionKind
		has           bool
	}{
		"TheSame":          {configMap, configMap, true},
		"TheSameOfAGroup":  {event, event, true},
		"InAnotherVersion": {older, event, true},
		"OfAnotherKind":    {configMap, secret, false},
		"OfAnotherGroup":   {event, coreEvent, false},
		"OfTheCoreGroup":   {coreEvent, event, false},
		"ItDoesNotSay":     {configMap, unsaid, true},
		"ReferenceDoesNot": {unsaid, configMap, true},
		"NeitherSays":      {unsaid, unsaid, true},
	} {
		t.Run(name, func(t *testing.T) {
			obj := anyKind(tc.written)
			mustSet(t, mcowner.SetControllerReference, cart(), obj)
			obj.SetGroupVersionKind(tc.read)
			r, err := mcowner.References(obj, mcowner.ByName("west"))
			if err != nil || (len(r) == 1) != tc.has {
				t.Errorf("References returned %v, %v, want the owner: %t", r, err, tc.has)
			}
			if _, ok := mcowner.ControllerOf(obj, mcowner.ByName("west")); ok != tc.has {
				t.Errorf("it has a controller: %t, want %t", ok, tc.has)
			}
		})
	}
}

// TestACopyInAnotherKindCanBeOwned, by the owner of the original, and by another one: what it says is of the original.
func TestACopyInAnotherKindCanBeOwned(t *testing.T) {
	for name, owner := range map[string]mcowner.Reference{"TheSame": cart(), "Another": cart(named("basket"))} {
		t.Run(name, func(t *testing.T) {
			obj := anyKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			mustSet(t, mcowner.SetControllerReference, cart(), obj)
			obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			mustSet(t, mcowner.SetControllerReference, owner, obj)
			if r, ok := mcowner.ControllerOf(obj, mcowner.ByName("west")); !ok || !r.Same(owner) || r.Dependent.Kind != "Secret" {
				t.Errorf("its controller is %v, %t", r, ok)
			}
		})
	}
}

// TestAReferenceKeepsTheKind that it was written with, when it is written by one who does not say it, and says it from then on if it did not.
func TestAReferenceKeepsTheKind(t *testing.T) {
	event := schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}
	for name, kinds := range map[string][2]schema.GroupVersionKind{"KnownBefore": {event, {}}, "KnownSince": {{}, event}, "Always": {event, event}} {
		t.Run(name, func(t *testing.T) {
			obj := anyKind(kinds[0])
			mustSet(t, mcowner.SetControllerReference, cart(), obj)
			obj.SetGroupVersionKind(kinds[1])
			mustSet(t, mcowner.SetControllerReference, cart(), obj)
			content := obj.Annotations[cart().Key()]
			if want := `"dependent":{"cluster":"west","group":"events.k8s.io","kind":"Event","namespace":"shop","name":"settings"}`; !strings.Contains(content, want) {
				t.Errorf("the reference is %s, want %s in it", content, want)
			}
		})
	}
}
