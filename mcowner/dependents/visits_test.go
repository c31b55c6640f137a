package dependents_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// bothLeave has a member leave, of which all replicas hear. What it returns is closed when it has left the one that works on it.
func (w *world) bothLeave(cp *mctest.ControlPlane, replicas ...*process) (left <-chan struct{}) {
	w.t.Helper()
	for _, p := range replicas {
		works := p.owns(mcreconcile.ClusterName(cp.Name))
		over, err := p.members.Leave(p.member(cp))
		if err != nil {
			w.t.Fatal(err)
		}
		if works {
			left = over
		}
	}
	return left
}

// TestOwnersOfAMemberThatLeavesTakeLeaveElsewhere as is declared for owners, wherever their dependents are: the other members, and
// the local cluster, stay.
func TestOwnersOfAMemberThatLeavesTakeLeaveElsewhere(t *testing.T) {
	t.Parallel()
	for _, policy := range leavePolicies {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			from, to := w.Members[0], w.Members[1]
			of := func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := w.fromMembers(policy)
				r.DependentsIn = mcowner.Clusters{Local: true, Members: named(to.Name)}
				r.Targets = func(context.Context, *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
					return []mcreconcile.ClusterName{mcreconcile.LocalCluster, mcreconcile.ClusterName(to.Name)}, nil
				}
				return r
			}
			one, two := w.runShared("one", of()), w.runShared("two", of())
			w.share(one, two)
			w.create(from, w.owner("a"))
			before := map[*mctest.ControlPlane]*corev1.ConfigMap{}
			for _, cp := range []*mctest.ControlPlane{w.Local, to} {
				before[cp] = w.isCopied(cp, "a")
			}
			<-w.bothLeave(from, one, two)
			w.hasNothing(from, "a")
			for cp, before := range before {
				w.becomes(cp, before, policy)
			}
		})
	}
}
