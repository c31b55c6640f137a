package dependents

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestHowTheOwnersOfAMemberAreDeletedIsKnownWhileItIsThisReplicas: another one hears of that itself.
func TestHowTheOwnersOfAMemberAreDeletedIsKnownWhileItIsThisReplicas(t *testing.T) {
	t.Parallel()
	for state, known := range map[fleet.State]int{fleet.Unreachable: 1, fleet.NotOwned: 0} {
		a := newAccounting(t, config{}, &plan{})
		a.engine.deletions.note("a", &connected{}, deletedOwner(metav1.FinalizerOrphanDependents))
		members{a.engine}.compare("a", memberSeen{state: fleet.Ready}, memberSeen{state: state})
		if n := len(a.engine.deletions.seen); n != known {
			t.Errorf("once the member is %s, %d deletions are known, want %d", state, n, known)
		}
	}
}

// TestAnOwnerThatIsGoneIsAskedForWhenItsMemberIsConnectedAnew, and not once more while that is the connection. What a connection is does not
// matter here: there is none.
func TestAnOwnerThatIsGoneIsAskedForWhenItsMemberIsConnectedAnew(t *testing.T) {
	t.Parallel()
	first, second := &fleet.Engagement{}, &fleet.Engagement{}
	for name, tc := range map[string]struct {
		last *fleet.Engagement
		asks int
	}{"it is connected anew": {first, 1}, "it is as it was": {second, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{})
			a.engine.owners = &feed[mcreconcile.Request]{}
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
			defer queue.ShutDown()
			if err := a.engine.owners.Start(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			a.engine.deletions.mayLeave = func(client.Object) bool { return true }
			a.engine.deletions.noteGone("a", &connected{}, deletedOwner(metav1.FinalizerOrphanDependents))
			members{a.engine}.compare("a", memberSeen{state: fleet.Ready, engagement: tc.last}, memberSeen{state: fleet.Ready, engagement: second})
			if queue.Len() != tc.asks {
				t.Errorf("%d owners are asked for, want %d", queue.Len(), tc.asks)
			}
		})
	}
}

// TestAMemberOfAnotherReplicaIsVisitedWhereItMayHaveGoneMeanwhile: it went and is back, which is seen as one change.
func TestAMemberOfAnotherReplicaIsVisitedWhereItMayHaveGoneMeanwhile(t *testing.T) {
	t.Parallel()
	first := time.Now()
	for name, tc := range map[string]struct {
		last, now memberSeen
		visits    int
	}{
		"it is given away":     {memberSeen{state: fleet.Ready, since: first}, memberSeen{state: fleet.NotOwned, since: first.Add(time.Second)}, 1},
		"it went, and is back": {memberSeen{state: fleet.NotOwned, since: first}, memberSeen{state: fleet.NotOwned, since: first.Add(time.Second)}, 1},
		"it is as it was":      {memberSeen{state: fleet.NotOwned, since: first}, memberSeen{state: fleet.NotOwned, since: first}, 0},
		"it is this replica's": {memberSeen{state: fleet.NotOwned, since: first}, memberSeen{state: fleet.Connecting, since: first.Add(time.Second)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAccounting(t, config{}, &plan{}, "a")
			queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[work]())
			defer queue.ShutDown()
			if err := a.engine.works.Start(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			members{a.engine}.compare("a", tc.last, tc.now)
			visits := 0
			for range queue.Len() {
				if w, _ := queue.Get(); w.task != account {
					visits++
				}
			}
			if visits != tc.visits {
				t.Errorf("there are %d visits, want %d", visits, tc.visits)
			}
		})
	}
}
