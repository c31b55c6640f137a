package objects_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

const foreignFinalizer = "example.com/keep"

// leaver creates a Secret whose members leave well. The given finalizers keep it too.
func (n namespace) leaver(name string, members map[string]string, finalizers ...string) *corev1.Secret {
	n.t.Helper()
	secret := n.secret(name, members, ours)
	update(n, secret, func(s *corev1.Secret) { s.Finalizers = slices.Concat(finalizers, []string{objects.LeaveFinalizer}) })
	return secret
}

// waitForFinalizers waits until the Secret has these, and returns it; without any, until it has gone.
func (n namespace) waitForFinalizers(secret *corev1.Secret, want ...string) *corev1.Secret {
	n.t.Helper()
	got := &corev1.Secret{}
	err := wait.PollUntilContextTimeout(n.t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := n.cl.Get(ctx, client.ObjectKeyFromObject(secret), got)
		gone := apierrors.IsNotFound(err) || err == nil && got.UID != secret.UID
		if gone || err != nil {
			return gone && len(want) == 0, client.IgnoreNotFound(err)
		}
		return len(want) > 0 && slices.Equal(got.Finalizers, want), nil
	})
	if err != nil {
		n.t.Fatalf("Secret %s has the finalizers %q, want %q: %v", secret.Name, got.Finalizers, want, err)
	}
	return got
}

func (r *recording) wantRemovals(t *testing.T, want map[fleet.ClusterName]int) {
	t.Helper()
	r.read(func() {
		for name, n := range r.removals {
			if n != want[name] {
				t.Errorf("%s was removed %d times, want %d", name, n, want[name])
			}
		}
	})
}

func TestADeletedObjectWithTheFinalizerGoesWhenItsMembersHaveLeft(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1", "b": "1"})
	ns.secret("other", map[string]string{"o": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1", "b": "1", "o": "1"})
	ns.delete(secret)
	r.waitUntil(t, "both are about to leave", func() bool { return r.leaving["a"] != nil && r.leaving["b"] != nil })
	ns.delete(secret)
	update(ns, secret, func(s *corev1.Secret) { s.Data["b"] = []byte("2") })
	r.waitForHosts(t, hosts{"a": "1", "b": "2", "o": "1"})
	r.letLeave(t, "a")
	r.waitForHosts(t, hosts{"b": "2", "o": "1"})
	r.wantRemovals(t, nil)
	ns.waitForFinalizers(secret, objects.LeaveFinalizer)
	r.letLeave(t, "b")
	ns.waitForFinalizers(secret)
	r.waitUntil(t, "both are withdrawn", func() bool { return r.removals["a"] == 1 && r.removals["b"] == 1 })
	r.waitForHosts(t, hosts{"o": "1"})
}

func TestMembersThatHaveLeftStayAwayWhileOthersKeepTheObject(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"}, foreignFinalizer)
	other := ns.secret("other", map[string]string{"o": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1", "o": "1"})
	ns.delete(secret)
	r.letLeave(t, "a")
	kept := ns.waitForFinalizers(secret, foreignFinalizer)
	update(ns, kept, func(s *corev1.Secret) { s.Data["a"] = []byte("2") })
	update(ns, other, func(s *corev1.Secret) { s.Data["o"] = []byte("2") })
	r.waitForHosts(t, hosts{"o": "2"})
	r.read(func() {
		if r.sets["a"] != 1 {
			t.Errorf("a was set %d times, want once", r.sets["a"])
		}
	})
	update(ns, kept, func(s *corev1.Secret) { s.Finalizers = nil })
	r.waitUntil(t, "a is withdrawn", func() bool { return r.removals["a"] == 1 })
}

func TestAProviderThatStartsLateLetsMembersLeave(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"})
	ns.delete(secret)
	r := newRecording()
	stop := startWith(t.Context(), t, startLocal(t, cp.Config()), provider(ns.string), r)
	r.waitUntil(t, "a is about to leave", func() bool { return r.leaving["a"] != nil })
	stop() // while it leaves
	r = start(t, cp.Config(), provider(ns.string))
	r.letLeave(t, "a")
	ns.waitForFinalizers(secret)
	r.read(func() {
		if r.sets["a"] != 0 {
			t.Errorf("a was set %d times, want that it only leaves", r.sets["a"])
		}
	})
}

func TestAFinalizerThatMayNotBeRemovedIsAProblem(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"})
	r := start(t, cp.AddUser(t, "manager", mayReadSecrets("get", "list", "watch")), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(secret)
	r.letLeave(t, "a")
	about := "Secret " + ns.string + "/secret a"
	r.waitForProblem(t, about, "NotReleased: ", "the manager may not patch objects of kind Secret")
	cp.AddUser(t, "manager", mayReadSecrets("get", "list", "watch", "patch"))
	ns.waitForFinalizers(secret)
	r.waitForProblem(t, about)
}

func TestAnObjectThatHasNoMemberIsNotKept(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	ns.secret("holder", map[string]string{"a": "1"}, ours)
	empty, younger := ns.leaver("z-empty", nil), ns.leaver("z-younger", map[string]string{"a": "2", "c": "blank"})
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(empty)
	ns.delete(younger)
	ns.waitForFinalizers(empty)
	ns.waitForFinalizers(younger)
	r.waitForHosts(t, hosts{"a": "1"})
	r.wantRemovals(t, nil)
}

// TestAMemberThatWasInvalidOnceLeavesWell: that it could not be reported then does not count as having left.
func TestAMemberThatWasInvalidOnceLeavesWell(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret, other := ns.leaver("secret", map[string]string{"a": "hostless"}), ns.leaver("other", nil)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForProblem(t, "Secret "+ns.string+"/secret a", "InvalidMember: ")
	update(ns, secret, func(s *corev1.Secret) { s.Data["a"] = []byte("1") })
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(secret)
	r.waitUntil(t, "a is about to leave", func() bool { return r.leaving["a"] != nil })
	ns.delete(other)
	ns.waitForFinalizers(other) // the provider has had the time to remove that of the first as well
	ns.waitForFinalizers(secret, objects.LeaveFinalizer)
	r.letLeave(t, "a")
	ns.waitForFinalizers(secret)
}

func TestAnObjectThatIsReplacedWhileItsMemberLeavesKeepsIt(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"})
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(secret)
	r.waitUntil(t, "a is about to leave", func() bool { return r.leaving["a"] != nil })
	update(ns, secret, func(s *corev1.Secret) { s.Finalizers = nil }) // somebody does not want to wait
	r.waitUntil(t, "a is withdrawn", func() bool { return r.removals["a"] == 1 })
	again := ns.leaver("secret", map[string]string{"a": "2"})
	r.waitForHosts(t, hosts{"a": "2"})
	r.read(func() {
		if r.leaving["a"] != nil {
			t.Error("the member of the new object leaves")
		}
	})
	ns.waitForFinalizers(again, objects.LeaveFinalizer)
}

func TestAnObjectThatCannotBeReadLetsTheMembersLeaveThatItHad(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"})
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	update(ns, secret, func(s *corev1.Secret) { s.Data["x"] = []byte("unknown") })
	ns.delete(secret)
	r.letLeave(t, "a")
	ns.waitForFinalizers(secret)
}

// TestAnObjectThatReplacesOneWhoseMemberLeavesUnseenKeepsIt: the provider is busy with the first while that goes.
func TestAnObjectThatReplacesOneWhoseMemberLeavesUnseenKeepsIt(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.leaver("secret", map[string]string{"a": "1"})
	p, entered, goOn := provider(ns.string), make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	p.Members = func(ctx context.Context, secret *corev1.Secret, also objects.Reader) ([]fleet.Member, error) {
		if secret.Annotations["busy"] != "" {
			enter()
			<-goOn
		}
		return describe(ctx, secret, also)
	}
	r := start(t, cp.Config(), p)
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(secret)
	r.waitUntil(t, "a is about to leave", func() bool { return r.leaving["a"] != nil })
	update(ns, secret, func(s *corev1.Secret) { s.Annotations = map[string]string{"busy": "yes"} })
	<-entered
	update(ns, secret, func(s *corev1.Secret) { s.Finalizers = nil })
	ns.leaver("secret", map[string]string{"a": "2"})
	close(goOn)
	r.waitForHosts(t, hosts{"a": "2"})
	r.waitUntil(t, "the member of the new object stays", func() bool { return r.leaving["a"] == nil })
}
