// Package kind tests what users deploy, on kind clusters with real kubelets and controllers: see docs/install.md.
package kind

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kind"
)

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestAFleetOfKindClusters goes through what happens to an operator and its members, one after the other.
func TestAFleetOfKindClusters(t *testing.T) {
	c := newClusters(t)
	o := deploy(t, c)
	// Each goes on where the one before has ended.
	_ = t.Run("changes in all members are reconciled by three replicas", o.testChanges) &&
		t.Run("metrics are shown to those that may read them", o.testMetrics) &&
		t.Run("a replica is deleted", o.testReplicaIsDeleted) &&
		t.Run("all replicas are evicted under writes", o.testEviction) &&
		t.Run("a rolling update under writes", o.testRollout) &&
		t.Run("an upgrade under writes and the way back", o.testUpgrade) &&
		t.Run("a member is deleted and comes back", o.testMemberComesBack) &&
		t.Run("each rule is needed", o.testRules) &&
		t.Run("the operator is removed", o.testRemoval) &&
		t.Run("what comes next is there", c.testLater) &&
		t.Run("members join by mcctl and leave", o.testAccesses) &&
		t.Run("Deployments are copied", c.testDeploymentcopy) &&
		t.Run("Foos of members become Deployments", c.testFoo) &&
		t.Run("Tests run in all clusters", c.testJobs) &&
		t.Run("members ask a webhook in the hub", c.testImages) &&
		t.Run("the quickstart runs against clusters of the user", c.testQuickstart) &&
		t.Run("a project of kubebuilder is deployed", c.testKubebuilder) &&
		t.Run("a moved project of kubebuilder is deployed", c.testMoved) &&
		t.Run("the replicator is deployed", c.testReplicator)
}

func (o *operator) testChanges(t *testing.T) {
	o.works(t, "first")
	o.works(t, "second")
	sessions := &coordinationv1.LeaseList{}
	eventually(t, "three replicas share the members", func() error {
		if err := o.hub.List(t.Context(), sessions, client.InNamespace(namespace)); err != nil {
			return err
		}
		live := slices.DeleteFunc(sessions.Items, func(l coordinationv1.Lease) bool {
			return !strings.HasPrefix(l.Name, "operator.s.") || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == ""
		})
		if len(live) != 3 {
			return fmt.Errorf("%d sessions are live", len(live))
		}
		return nil
	})
}

func (o *operator) testMetrics(t *testing.T) {
	pod, reader := o.pods(t)[0], o.token(t, "reader")
	for _, page := range []string{"/metrics", "/debug/fleet"} {
		for _, who := range []struct {
			name, token string
			want        int
		}{
			{"nobody", "", http.StatusUnauthorized},
			{"an account without the right", o.token(t, "default"), http.StatusForbidden},
			{"the reader", reader, http.StatusOK},
		} {
			eventually(t, fmt.Sprintf("%s is answered about %s", who.name, page), func() error {
				status, body, err := o.ask(t, pod, page, who.token)
				if err != nil || status != who.want {
					return fmt.Errorf("status %d, want %d, %w: %s", status, who.want, err, body)
				}
				return nil
			})
		}
	}
	for _, name := range []string{east, west} {
		o.becomes(t, name, reader, fleet.Ready)
	}
}

func (o *operator) testReplicaIsDeleted(t *testing.T) {
	owner := o.works(t, "before the replica is deleted")[east]
	o.kubectl(t, hub, "--namespace", namespace, "delete", "pod", owner)
	if next := o.works(t, "after the replica was deleted")[east]; next == owner {
		t.Errorf("%s, which was deleted, has written on", owner)
	}
}

// testEviction evicts as kubectl drain does. The hub has one node, so a cordon would leave no place.
func (o *operator) testEviction(t *testing.T) {
	o.underWrites(t, func() {
		for _, pod := range o.pods(t) {
			eventually(t, pod+" is evicted", func() error {
				it := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}}
				return client.IgnoreNotFound(o.hub.SubResource("eviction").Create(t.Context(), it, &policyv1.Eviction{}))
			})
			eventually(t, pod+" is gone", func() error {
				it := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}}
				if err := o.hub.Get(t.Context(), client.ObjectKeyFromObject(it), it); !apierrors.IsNotFound(err) {
					return fmt.Errorf("it is there; error %w", err)
				}
				return nil
			})
		}
	})
}

func (o *operator) testRollout(t *testing.T) {
	o.underWrites(t, func() {
		o.rollsOut(t, "restart", "deployment/operator")
	})
}

// rollsOut runs a command of kubectl rollout, and waits until the new replicas work in the place of the old ones.
func (o *operator) rollsOut(t *testing.T, command ...string) {
	t.Helper()
	old := o.pods(t)
	o.kubectl(t, hub, append([]string{"--namespace", namespace, "rollout"}, command...)...)
	o.hasRolledOut(t, old)
}

// hasRolledOut waits until the new replicas work in the place of the old ones.
func (o *operator) hasRolledOut(t *testing.T, old []string) {
	t.Helper()
	o.kubectl(t, hub, "--namespace", namespace, "rollout", "status", "deployment/operator", "--timeout", patience.String())
	o.kubectl(t, hub, append([]string{"--namespace", namespace, "wait", "pod", "--for=delete", "--timeout", patience.String()}, old...)...)
	for member, replica := range o.works(t, "instead of "+strings.Join(old, ", ")) {
		if slices.Contains(old, replica) {
			t.Errorf("%s was written by %s after that was replaced", member, replica)
		}
	}
}

// The versions of the operator: that which docs/install.md deploys, and that to which it is upgraded.
const (
	before = "dev"
	next   = "v0.2.0"
)

// testUpgrade goes to another version and back, as docs/install.md says.
func (o *operator) testUpgrade(t *testing.T) {
	both := o.underWrites(t, func() {
		o.works(t, "before the upgrade")
		old := o.pods(t)
		o.kubectl(t, hub, "--namespace", namespace, "set", "image", "deployment/operator", "operator=fleet.example.com/operator:"+next)
		o.hasRolledOut(t, old)
		o.rollsOut(t, "undo", "deployment/operator")
	})
	for member, h := range both {
		eventually(t, fmt.Sprintf("%s was written by %s, then %s, and %s again", member, before, next, before), func() error {
			if got := h.versions(); len(got) < 3 || got[0] != before || !slices.Contains(got, next) || got[len(got)-1] != before {
				return fmt.Errorf("it was written by %q", got)
			}
			return nil
		})
	}
}

// underWrites checks that nothing is lost, and that no member has two writers, whatever happens while changes are made. It returns
// what was written in each.
func (o *operator) underWrites(t *testing.T, happens func()) map[string]*history {
	t.Helper()
	histories := map[string]*history{}
	for name, member := range o.members {
		histories[name] = record(t, member)
	}
	finish := o.writing(t)
	happens()
	last := finish()
	for member := range o.members {
		for name, content := range last {
			o.summed(t, member, name, content)
		}
		histories[member].isInOrder(t, member)
	}
	return histories
}

// testMemberComesBack deletes a member, and creates it anew. The operator knows it by a Secret, and the provider of kind clusters by its name.
func (o *operator) testMemberComesBack(t *testing.T) {
	reader, provided := o.token(t, "reader"), o.follow(t)
	before := provided.becomes(t, east, fleet.Ready, "")
	other := provided.becomes(t, west, fleet.Ready, "")
	o.delete(t, east)
	delete(o.members, east)
	provided.becomes(t, east, fleet.Pending, kind.ReasonNoCluster)
	o.becomes(t, east, reader, fleet.Unreachable)
	o.works(t, "while the other member is away")

	must(t, o.create(t, east))
	o.join(t, east) // it is another cluster now, with another certificate authority
	o.becomes(t, east, reader, fleet.Ready)
	o.works(t, "when the member is back")
	if now := provided.becomes(t, east, fleet.Ready, ""); now == before {
		t.Errorf("the provider takes the new %s for the one before, %q", east, before)
	}
	if now := provided.becomes(t, west, fleet.Ready, ""); now != other {
		t.Errorf("%s, which stayed, was %q for the provider, and is %q", west, other, now)
	}
}

func (o *operator) testRemoval(t *testing.T) {
	o.kubectl(t, hub, "delete", "-f", manifests+"reader.yaml", "-f", manifests+"hub.yaml", "--timeout", patience.String())
}
