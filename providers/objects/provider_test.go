package objects_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

func TestMembersFollowTheObjects(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	early := ns.secret("early", map[string]string{"a": "1"}, ours)
	ns.secret("unlabelled", map[string]string{"x": "1"})
	newNamespace(t, cp).secret("elsewhere", map[string]string{"y": "1"}, ours)

	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})
	late := ns.secret("late", map[string]string{"b": "1", "c": "1"}, ours)
	r.waitForHosts(t, hosts{"a": "1", "b": "1", "c": "1"})
	update(ns, late, func(s *corev1.Secret) { s.Data = map[string][]byte{"b": []byte("2"), "c": []byte("1")} })
	r.waitForHosts(t, hosts{"a": "1", "b": "2", "c": "1"})
	update(ns, late, func(s *corev1.Secret) { delete(s.Data, "c") })
	r.waitForHosts(t, hosts{"a": "1", "b": "2"})
	update(ns, late, func(s *corev1.Secret) { delete(s.Labels, ours) })
	r.waitForHosts(t, hosts{"a": "1"})
	ns.delete(early)
	r.waitForHosts(t, hosts{})
	update(ns, late, func(s *corev1.Secret) { s.Labels = map[string]string{ours: "true", "tier": "test"} })
	r.waitForHosts(t, hosts{"b": "2"})
	r.read(func() {
		if diff := cmp.Diff(map[string]string{ours: "true", "tier": "test", objects.NamespaceLabel: ns.string}, r.members["b"].Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[fleet.ClusterName]int{"a": 1, "b": 1, "c": 1}, r.removals); diff != "" {
			t.Errorf("removals (-want +got):\n%s", diff)
		}
	})
}

func TestAnObjectThatStillMatchesASelectorKeepsItsMember(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours, theirs)
	other := ns.secret("other", map[string]string{"o": "1"}, theirs)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1", "o": "1"})

	for step, change := range []func(s *corev1.Secret){
		func(s *corev1.Secret) { delete(s.Labels, ours) },
		func(s *corev1.Secret) { s.Labels[ours] = "true" },
		func(s *corev1.Secret) { delete(s.Labels, theirs) },
		func(s *corev1.Secret) { s.Labels = map[string]string{theirs: "true"} }, // goes from one watch to the other
		func(s *corev1.Secret) { s.Labels = map[string]string{ours: "true"} },
	} {
		host := fmt.Sprintf("after step %d", step)
		update(ns, secret, func(s *corev1.Secret) {
			change(s)
			s.Data["a"] = []byte(host)
		})
		r.waitForHosts(t, hosts{"a": host, "o": "1"})
		// The other object's change comes after all that the first one's can have led to.
		update(ns, other, func(s *corev1.Secret) { s.Data["o"] = []byte(host) })
		r.waitForHosts(t, hosts{"a": host, "o": host})
		update(ns, other, func(s *corev1.Secret) { s.Data["o"] = []byte("1") })
		r.waitForHosts(t, hosts{"a": host, "o": "1"})
	}
	r.read(func() {
		if len(r.removals) > 0 {
			t.Errorf("members were removed: %v", r.removals)
		}
	})
	ns.delete(secret)
	r.waitForHosts(t, hosts{"o": "1"})
}

// TestAMemberOfAnotherObjectIsANewOne: it may be another cluster, so what there is of the first is removed before it is set.
func TestAMemberOfAnotherObjectIsANewOne(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	first := ns.secret("first", map[string]string{"a": "1", "b": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1", "b": "1"})
	ns.secret("second", map[string]string{"a": "2", "d": "2"}, ours)
	r.waitForHosts(t, hosts{"a": "1", "b": "1", "d": "2"})
	ns.delete(first)
	r.waitForHosts(t, hosts{"a": "2", "d": "2"})
	r.read(func() {
		if r.removals["a"] != 1 || r.removals["b"] != 1 || r.removals["d"] != 0 {
			t.Errorf("removals %v, want one of a, and of b", r.removals)
		}
	})
}
