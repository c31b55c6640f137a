package dependents_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestAMemberOfAnotherReplicaWaitsForWhatIsDeclared, however long it takes the replica that works on the owner: for dependents, and
// for the namespace that was created for them.
func TestAMemberOfAnotherReplicaWaitsForWhatIsDeclared(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"configmaps", "namespaces"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			namespace := w.ns + "-created"
			spread := func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := w.inNamespaces()
				r.OnMemberLeaving = dependents.LeaveDeleted
				return r
			}
			one, two := w.runShared("one", spread()), w.runShared("two", spread())
			home, other := w.share(one, two)
			leaves := w.of(other)[0]
			owner := w.ownerIn("a", namespace)
			owner.Annotations["to"] = leaves.Name
			w.create(w.Local, owner)
			dependent := &corev1.ConfigMap{ObjectMeta: metaOf(namespace, copyOf("a"))}
			eventually(t, "there is a dependent", func() bool { return w.isThere(leaves, dependent) })
			opened := make(chan struct{})
			open := sync.OnceFunc(func() { close(opened) })
			defer open()
			home.power.listen(func(req *http.Request) {
				if req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "/"+kind+"/") {
					<-opened
				}
			})
			left := w.bothLeave(leaves, one, two)
			select {
			case <-left:
				t.Error("the member has left before all was deleted")
			case <-time.After(3 * time.Second): // nothing tells that nothing is about to happen
			}
			open()
			<-left
			if w.isThere(leaves, dependent) || w.namespace(leaves, namespace) != nil {
				t.Error("the member has left with the dependent, or the namespace")
			}
		})
	}
}

// TestAMemberOfAnotherReplicaLeavesWithItsDependents if they are to stay as they are, which is so where nothing is declared.
func TestAMemberOfAnotherReplicaLeavesWithItsDependents(t *testing.T) {
	t.Parallel()
	for _, policy := range []dependents.LeavePolicy{"", dependents.LeaveAsIs} {
		t.Run("Policy"+string(policy), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			spread := func() *dependents.Reconciler[*corev1.ConfigMap] {
				r := w.spread()
				r.OnMemberLeaving = policy
				return r
			}
			one, two := w.runShared("one", spread()), w.runShared("two", spread())
			_, other := w.share(one, two)
			leaves := w.of(other)[0]
			w.create(w.Local, w.owner("a", w.everyone()...))
			before := w.isCopied(leaves, "a")
			over := w.bothLeave(leaves, one, two)
			eventually(t, "the member has left", func() bool {
				select {
				case <-over:
					return true
				default:
					return false
				}
			})
			w.becomes(leaves, before, dependents.LeaveAsIs)
			w.remove(w.Local, "a")
			w.isGone(w.Local, "a")
			w.unharmed(leaves, before)
		})
	}
}
