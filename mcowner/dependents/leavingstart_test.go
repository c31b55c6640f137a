package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// gated gives lists and watches of ConfigMaps no answer until it is opened.
type gated struct {
	through http.RoundTripper
	opened  <-chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (g gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps") {
		select {
		case <-g.opened:
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
	return g.through.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (g gated) WrappedRoundTripper() http.RoundTripper { return g.through }

// TestAMemberThatLeavesAfterAStartWaitsForOwnersThatAreNotKnownYet: it leaves with what is declared for it all the same.
func TestAMemberThatLeavesAfterAStartWaitsForOwnersThatAreNotKnownYet(t *testing.T) {
	forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
		r := w.spread()
		r.OnMemberLeaving = policy
		w.leavesBeforeOwnersAreKnown(r, func(r *dependents.Reconciler[*corev1.ConfigMap], local *rest.Config) *process {
			return w.runAs(local, func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) })
		})
	})
}

// TestAMemberThatLeavesAfterAReplicaHasStartedWaitsForOwnersThatAreNotKnownYet is the same where replicas share the members.
func TestAMemberThatLeavesAfterAReplicaHasStartedWaitsForOwnersThatAreNotKnownYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	replicas := 0
	w.leavesBeforeOwnersAreKnown(w.spread(), func(r *dependents.Reconciler[*corev1.ConfigMap], local *rest.Config) *process {
		replicas++
		return w.runSharedAs(local, fmt.Sprint("replica-", replicas), r)
	})
}

func (w *world) leavesBeforeOwnersAreKnown(
	r *dependents.Reconciler[*corev1.ConfigMap], run func(*dependents.Reconciler[*corev1.ConfigMap], *rest.Config) *process,
) {
	w.t.Helper()
	one, two := w.Members[0], w.Members[1]
	p := run(r, w.Local.Config())
	before := map[string]*corev1.ConfigMap{}
	for n := range 10 {
		name := fmt.Sprint("a", n)
		w.create(w.Local, w.owner(name, one.Name))
		before[name] = w.isCopied(one, name)
	}
	p.stop()
	opened := make(chan struct{})
	cfg := w.Local.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return gated{through, opened} })
	w.Members = []*mctest.ControlPlane{two}
	p = run(r, cfg)
	p.is(two, fleet.Ready)
	left, err := p.members.Leave(p.member(one))
	if err != nil {
		w.t.Fatal(err)
	}
	select {
	case <-left:
		w.t.Fatal("the member has left before its owners were known")
	case <-time.After(3 * time.Second): // nothing tells that nothing is about to happen
	}
	close(opened)
	<-left
	for name, dependent := range before {
		if in := placedIn(w.mustGet(w.Local, name)); strings.Contains(in, one.Name) {
			w.t.Errorf("the member has left, and %s waits for clusters %s", name, in)
		}
		w.becomes(one, dependent, r.OnMemberLeaving)
	}
}

// TestAMemberThatLeavesAfterAStartWaitsForOwnersInAClusterThatIsAway, as long as it has dependents of theirs.
func TestAMemberThatLeavesAfterAStartWaitsForOwnersInAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.connectTimeout = time.Second
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers("")
	r.OnMemberLeaving = dependents.LeaveDeleted
	p, before := w.runFromMember(r)
	p.stop()
	one.Freeze(t)
	p = w.run(r)
	eventually(t, "the cluster of owners cannot be connected", func() bool {
		status, _ := p.GetFleet().Status(fleet.ClusterName(one.Name))
		return status.Reason != ""
	})
	left, err := p.members.Leave(p.member(two))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-left:
		t.Fatal("the member has left with dependents of owners that are away")
	case <-time.After(3 * time.Second): // nothing tells that nothing is about to happen
	}
	one.Thaw(t)
	<-left
	if w.get(two, before.Name) != nil {
		t.Error("the member has left with the dependent")
	}
}

// planless is spread, but for owners with the value 2, which cannot be planned.
func (w *world) planless() *dependents.Reconciler[*corev1.ConfigMap] {
	r := w.spread()
	r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Data["value"] == "2" {
			return nil, errors.New("nobody knows")
		}
		return targetsOf(owner), nil
	}
	return r
}

// TestAnOwnerThatCannotBePlannedHoldsUpNoMemberThatLeaves, be it since the program has started: nobody would know how long.
func TestAnOwnerThatCannotBePlannedHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string]bool{"SinceTheStart": true, "SinceItWasChanged": false} {
		t.Run(name, func(t *testing.T) {
			forEachLeave(t, func(w *world, policy dependents.LeavePolicy) {
				one := w.Members[0]
				r := w.planless()
				r.OnMemberLeaving = policy
				p := w.run(r)
				w.create(w.Local, w.owner("a", one.Name))
				before := w.isCopied(one, "a")
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
				w.told(w.Local, "a", dependents.EventFailed, "nobody knows")
				if restarts {
					p.stop()
					p = w.run(r)
					p.is(one, fleet.Ready)
					policy = dependents.LeaveAsIs // for what is not planned
				}
				p.leave(one)
				w.becomes(one, before, policy)
			})
		})
	}
}

// TestOwnersInAClusterThatCannotBeToldFromOthersHoldUpNoMemberThatLeaves: none of them is planned.
func TestOwnersInAClusterThatCannotBeToldFromOthersHoldUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.stop()
	local := w.Local.AddUser(t, "no-identity", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	p = w.runAs(local, func(mgr mcmanager.Manager) error { return r.SetupWithManager(mgr) })
	p.is(one, fleet.Ready)
	p.leave(one)
	w.unharmed(one, before)
}

// TestOwnersInAMemberThatIsPausedHoldUpNoMemberThatLeaves: none of them is planned until the pause is over.
func TestOwnersInAMemberThatIsPausedHoldUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers("")
	p, before := w.runFromMember(r)
	p.stop()
	p = w.runWith(func(mgr mcmanager.Manager) error {
		mgr.GetFleet().HoldBy(func(name fleet.ClusterName) fleet.Hold {
			return fleet.Hold{Paused: name == fleet.ClusterName(one.Name)}
		})
		return r.SetupWithManager(mgr)
	})
	p.is(one, fleet.Ready)
	p.leave(two)
	w.unharmed(two, before)
}

// TestAListThatFailsHoldsUpNoMemberThatLeaves where all owners are known: no answer would change anything.
func TestAListThatFailsHoldsUpNoMemberThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = append(r.Kinds, &corev1.Secret{})
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	before := w.isCopied(one, "a")
	p.power.refused.Store(&[3]string{http.MethodGet, hostOf(one), "/secrets"})
	p.leave(one)
	w.isGone(one, before.Name)
}
