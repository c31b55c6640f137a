package dependents

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

var (
	configKind = remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	secretKind = remote.Untyped(corev1.SchemeGroupVersion.WithKind("Secret"))
)

// TestWhichVersionOfAKindIsServedIsAskedForAfterItHung: in its own, in which it is read meanwhile, there may be nothing any more.
func TestWhichVersionOfAKindIsServedIsAskedForAfterItHung(t *testing.T) {
	t.Parallel()
	p := placing()
	p.o = newOwnerState(mcreconcile.Request{}, "1")
	p.o.noteHung(p.keyOfKind(secretKind), true)
	if served, is := p.versionOf(secretKind); !is || served.GroupVersionKind != secretKind.GroupVersionKind {
		t.Errorf("it is read in %s: %t", served.GroupVersionKind, is)
	}
	if p.untilFresh() <= 0 {
		t.Error("nothing brings the work back")
	}
}

// TestWhatIsOfAKindThatHangsWasNotAskedFor: it may not be written late, and what comes after it has its turn.
func TestWhatIsOfAKindThatHangsWasNotAskedFor(t *testing.T) {
	t.Parallel()
	p, done := placing(), &report{}
	p.o = newOwnerState(mcreconcile.Request{}, "1")
	unknown := map[schema.GroupKind]error{secretKind.GroupKind(): context.DeadlineExceeded, configKind.GroupKind(): errors.New("another error")}
	of := metav1.ObjectMeta{Name: "a"}
	wants := []wanted{{kind: secretKind, obj: &corev1.Secret{ObjectMeta: of}}, {kind: configKind, obj: &corev1.ConfigMap{ObjectMeta: of}}}
	if _, err := p.applyInWaves(t.Context(), p.sequenceOf(wants, true), wants, nil, unknown, done); err == nil {
		t.Error("there is no error")
	}
	if present := &p.o.partLocked(p.at.Name()).present; present.isLate(secretKind.GroupKind()) {
		t.Error("it counts as one that may be written late")
	}
	if last := done.Objects[1].Err; errors.Is(last, ErrWaiting) {
		t.Errorf("the other one waits: %v", last)
	}
}
