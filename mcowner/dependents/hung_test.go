package dependents

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

var secretKind = remote.Untyped(corev1.SchemeGroupVersion.WithKind("Secret"))

// TestWhichVersionOfAKindIsServedIsAskedForAfterItHung: in its own, in which it is read meanwhile, there may be nothing any more.
func TestWhichVersionOfAKindIsServedIsAskedForAfterItHung(t *testing.T) {
	t.Parallel()
	p := placing()
	p.o = newOwnerState(mcreconcile.Request{})
	p.o.noteHung(p.keyOfKind(secretKind), true)
	if served, is := p.versionOf(secretKind); !is || served.GroupVersionKind != secretKind.GroupVersionKind {
		t.Errorf("it is read in %s: %t", served.GroupVersionKind, is)
	}
	if p.untilFresh() <= 0 {
		t.Error("nothing brings the work back")
	}
}
