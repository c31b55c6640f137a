package dependents_test

import (
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

// TestTheRightsOfTheDocsSuffice: those that docs/ownership.md lists, of the owners' cluster and of the dependents'.
func TestTheRightsOfTheDocsSuffice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	owners := one.AddUser(t, "controller", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
	}...)
	ofDependents := two.AddUser(t, "controller", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
	}...)
	r := w.spread()
	r.OwnersIn, r.DependentsIn = mcowner.Clusters{Members: named(one.Name)}, mcowner.Clusters{Members: named(two.Name)}
	r.Sweep.Interval, r.Sweep.Listing = 100*time.Millisecond, 100*time.Millisecond
	w.Members = nil // reported below
	p := w.run(r)
	for name, cfg := range map[string]fleet.Member{one.Name: {Config: owners}, two.Name: {Config: ofDependents}} {
		cfg.Name, cfg.Labels = fleet.ClusterName(name), map[string]string{"name": name}
		if err := p.members.Set(cfg); err != nil {
			t.Fatal(err)
		}
	}
	w.create(one, w.owner("a", two.Name))
	w.isCopied(two, "a")
	w.told(one, "a", dependents.EventCreated, copyOf("a"))
	w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	eventually(t, "the copy follows", func() bool { return w.mustGet(two, copyOf("a")).Data["value"] == "2" })
	w.remove(one, "a")
	w.isGone(one, "a")
	w.isGone(two, copyOf("a"))

	w.create(one, w.owner("b", two.Name))
	w.isCopied(two, "b")
	<-p.members.Remove("member-1") // so that the collector alone can find what follows
	w.change(one, "b", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.remove(one, "b")
	if err := p.members.Set(fleet.Member{Name: "member-1", Config: owners, Labels: map[string]string{"name": "member-1"}}); err != nil {
		t.Fatal(err)
	}
	w.isGone(two, copyOf("b"))
}

// TestNothingIsLeftOfMembersThatLeave: no goroutine of their events, caches and clients.
func TestNothingIsLeftOfMembersThatLeave(t *testing.T) {
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Members: named(one.Name)}
	p := w.run(r)
	w.create(one, w.owner("a", two.Name))
	cycle := func() {
		for _, cp := range w.Members {
			if err := p.members.Set(p.member(cp)); err != nil {
				t.Fatal(err)
			}
		}
		w.isCopied(two, "a")
		w.remove(two, copyOf("a"))
		w.isCopied(two, "a") // with an event
		for _, cp := range w.Members {
			<-p.members.Remove(fleet.ClusterName(cp.Name))
		}
	}
	cycle()
	before := runtime.NumGoroutine()
	for range 5 {
		cycle()
	}
	eventually(t, "as many goroutines run as before", func() bool { return runtime.NumGoroutine() <= before })
}

func named(name string) labels.Selector { return labels.SelectorFromSet(labels.Set{"name": name}) }
