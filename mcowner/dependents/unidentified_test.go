package dependents_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// latest has the results that owners were given last.
type latest struct {
	mu  sync.Mutex // guards all
	all map[string][]dependents.Result
}

// note is a Status.
func (l *latest) note(_ context.Context, owner *corev1.ConfigMap, results []dependents.Result) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string][]dependents.Result{}
	}
	l.all[owner.Name] = slices.Clone(results)
	return nil
}

// of returns the result of a cluster.
func (l *latest) of(owner string, cp *mctest.ControlPlane) dependents.Result {
	return l.in(owner, mcreconcile.ClusterName(cp.Name))
}

func (l *latest) in(owner string, name mcreconcile.ClusterName) dependents.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.all[owner], func(r dependents.Result) bool { return r.Cluster == name })
	if i < 0 {
		return dependents.Result{}
	}
	return l.all[owner][i]
}

func (l *latest) states(owner string, cp *mctest.ControlPlane) []dependents.State {
	objects := l.of(owner, cp).Objects
	states := make([]dependents.State, len(objects))
	for i, o := range objects {
		states[i] = o.State
	}
	return states
}

// TestAClusterThatCannotBeToldFromOthersIsNotTouched, by the reconciler nor by the collector, until it can.
func TestAClusterThatCannotBeToldFromOthersIsNotTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	unknown := one.AddUser(t, "no-kube-system", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	orphan := w.owned(one, "orphan", w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller }))
	var results latest
	r := w.spread()
	r.Status = results.note
	r.Sweep.Interval, r.Sweep.Listing = 50*time.Millisecond, 50*time.Millisecond
	w.Members = w.Members[1:]
	p := w.run(r)
	p.add(one, unknown)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(two, "a")
	w.told(w.Local, "a", dependents.EventFailed, "kube-system")
	eventually(t, "the result says so", func() bool { return errors.Is(results.of("a", one).Err, mcmanager.ErrNoIdentity) })
	w.isGone(two, w.owned(two, "z", w.goneOwner(func(r *mcowner.Reference) { r.Manager = controller })).Name) // swept meanwhile
	w.unharmed(one, orphan)
	if w.get(one, copyOf("a")) != nil {
		t.Error("the cluster has a dependent")
	}
	p.add(one, one.Config())
	w.isCopied(one, "a")
	w.isGone(one, "orphan")
}

// TestReferencesWithoutIdentityAreCounted by sweeps.
func TestReferencesWithoutIdentityAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	alive := w.owner("alive")
	w.create(w.Local, alive)
	identified := func(r *mcowner.Reference) { r.ClusterUID = w.kubeSystem(w.Local) }
	for name, in := range map[string]struct {
		owner     mcowner.Reference
		dependent mcowner.ClusterID
	}{
		"whole":        {w.to(alive, identified), mcowner.ClusterID{Name: "member-1", UID: w.kubeSystem(one)}},
		"no owner":     {w.to(alive), mcowner.ClusterID{Name: "member-1", UID: w.kubeSystem(one)}},
		"no dependent": {w.to(alive, identified), mcowner.ByName("member-1")},
	} {
		cm := w.owner(mcowner.UniqueName(20, name))
		if err := mcowner.SetControllerReference(in.owner, cm, in.dependent); err != nil {
			t.Fatal(err)
		}
		w.create(one, cm)
	}
	w.collect()
	eventually(t, "two are counted", func() bool { return w.metric("fleet_runtime_dependents_without_identity", one, "", "") == 2 })
}

// TestARightThatIsGrantedLaterIsNoticed: nothing else about the member changes, and its connections stay.
func TestARightThatIsGrantedLaterIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	onConfigMaps := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}
	user := one.AddUser(t, "granted-later", onConfigMaps)
	var results latest
	r := w.spread()
	r.Status = results.note
	w.Members = nil
	p := w.run(r)
	p.add(one, user)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the result says what is missing", func() bool { return errors.Is(results.of("a", one).Err, mcmanager.ErrNoIdentity) })
	one.AddUser(t, "granted-later", onConfigMaps, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"},
	})
	w.isCopied(one, "a")
	eventually(t, "nothing is wrong any more", func() bool { return results.of("a", one).Err == nil })
}
