package fleet

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestAKindFailsWhileOneThatListsItFails(t *testing.T) {
	k := newKinds()
	changes := 0
	k.onChange = func() { changes++ }
	pods := corev1.SchemeGroupVersion.WithKind("Pod")
	begins, _ := k.check(pods)

	k.report(pods, "namespace a", errors.New("no"))
	select {
	case <-begins:
	default:
		t.Error("who waits for the kind is not told that it fails")
	}
	k.report(pods, "namespace b", errors.New("no"))
	k.report(pods, "namespace b", nil)
	if diff := cmp.Diff(map[string]string{"Pod": "Error: no"}, k.summary()); diff != "" {
		t.Errorf("summary (-want, +got):\n%s", diff)
	}
	k.report(pods, "namespace a", nil)
	if k.summary() != nil {
		t.Errorf("summary = %v after all work again, want none", k.summary())
	}
	if _, failure := k.check(pods); failure != nil {
		t.Errorf("check() = %v after all work again, want none", failure)
	}
	if changes != 4 {
		t.Errorf("told of %d changes, want 4", changes)
	}
}

func TestTheSameFailureAgainIsNoNews(t *testing.T) {
	k := newKinds()
	pods := corev1.SchemeGroupVersion.WithKind("Pod")
	if !k.report(pods, "me", errors.New("no")) {
		t.Error("the first failure is no news")
	}
	if k.report(pods, "me", errors.New("no, at another time")) {
		t.Error("a failure for the same reason is news")
	}
	if k.report(pods, "other", nil) {
		t.Error("that it works, where it never failed, is news")
	}
}
