package dependents

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// connected is a cluster of which nothing is asked.
type connected struct{ cluster.Cluster }

func deletedOwner(finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", DeletionTimestamp: new(metav1.Now()), Finalizers: finalizers}}
}

// TestHowAnOwnerIsDeletedIsOfItsClusterAlone: another one, which was made from its backup, has owners of the same UIDs.
func TestHowAnOwnerIsDeletedIsOfItsClusterAlone(t *testing.T) {
	t.Parallel()
	east, west := &connected{}, &connected{}
	d := &deletions{}
	orphaned, plain := deletedOwner(metav1.FinalizerOrphanDependents), deletedOwner()
	d.predicate("east", east).Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: orphaned})
	if got := d.policyOf("west", west, plain, metav1.DeletePropagationBackground); got != metav1.DeletePropagationBackground {
		t.Errorf("the owner of west is deleted with the policy %s", got)
	}
	d.predicate("west", west).Delete(event.DeleteEvent{Object: plain})
	if got := d.policyOf("east", east, plain, metav1.DeletePropagationBackground); got != metav1.DeletePropagationOrphan {
		t.Errorf("the owner of west is gone, and that of east is deleted with the policy %s", got)
	}
}

// TestADeletionThatABackupUndoesIsForgotten: the owner may be deleted in another way one day.
func TestADeletionThatABackupUndoesIsForgotten(t *testing.T) {
	t.Parallel()
	east := &connected{}
	d := &deletions{}
	plain, orphaned := deletedOwner(), deletedOwner(metav1.FinalizerOrphanDependents)
	restored := plain.DeepCopy()
	restored.DeletionTimestamp = nil
	passes := d.predicate("east", east)
	for _, restore := range []func(){
		func() { passes.Update(event.UpdateEvent{ObjectOld: orphaned, ObjectNew: restored}) },
		func() { passes.Create(event.CreateEvent{Object: restored}) }, // for the next connection
	} {
		passes.Update(event.UpdateEvent{ObjectOld: plain, ObjectNew: orphaned})
		restore()
		if got := d.policyOf("east", east, plain, metav1.DeletePropagationBackground); got != metav1.DeletePropagationBackground {
			t.Errorf("it is deleted with the policy %s", got)
		}
	}
}

// TestHowOwnersAreDeletedIsForgottenWithTheirCluster, and not what the next one of its name has said already.
func TestHowOwnersAreDeletedIsForgottenWithTheirCluster(t *testing.T) {
	t.Parallel()
	orphaned := deletedOwner(metav1.FinalizerOrphanDependents)
	for name, c := range map[string]struct {
		now  func(before cluster.Cluster) cluster.Cluster
		says bool
		want metav1.DeletionPropagation
	}{
		"it is gone":                    {func(cluster.Cluster) cluster.Cluster { return nil }, false, metav1.DeletePropagationBackground},
		"another one has the name":      {func(cluster.Cluster) cluster.Cluster { return &connected{&connected{}} }, false, metav1.DeletePropagationBackground},
		"another one, which has spoken": {func(cluster.Cluster) cluster.Cluster { return &connected{&connected{}} }, true, metav1.DeletePropagationOrphan},
		"it is the same":                {func(before cluster.Cluster) cluster.Cluster { return before }, false, metav1.DeletePropagationOrphan},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &deletions{}
			before := &connected{&connected{}}
			now := c.now(before)
			d.note("east", before, orphaned)
			d.note("west", before, orphaned)
			if c.says {
				d.note("east", now, orphaned)
			}
			d.forgetOrigin("east", now)
			if got := d.policyOf("east", now, deletedOwner(), metav1.DeletePropagationBackground); got != c.want {
				t.Errorf("the policy is %s, want %s", got, c.want)
			}
			if got := d.policyOf("west", before, deletedOwner(), metav1.DeletePropagationBackground); got != metav1.DeletePropagationOrphan {
				t.Errorf("that of an owner in west is %s", got)
			}
		})
	}
}

// TestWhatEndedUnseenIsForgotten: the connection of a cluster broke before an event could tell that owners are gone, another replica sees to
// them, or another owner has the name when it is back.
func TestWhatEndedUnseenIsForgotten(t *testing.T) {
	t.Parallel()
	before, now := &connected{&connected{}}, &connected{&connected{}}
	orphaned := deletedOwner(metav1.FinalizerOrphanDependents)
	req := requestOf("east", orphaned)
	for name, c := range map[string]struct {
		others bool
		happen func(*deletions)
		known  bool
		ask    bool // for the owner, since nobody may have seen to it
	}{
		"it goes":                {happen: func(d *deletions) { d.note("east", before, orphaned) }, known: true},
		"all was done for it":    {happen: func(d *deletions) { d.settle(req, orphaned.UID, before) }},
		"all is done for it now": {happen: func(d *deletions) { d.settle(req, orphaned.UID, now) }, known: true},
		"it is gone":             {happen: func(d *deletions) { d.noteGone("east", before, orphaned) }, known: true, ask: true},
		"another replica sees to it": {others: true, happen: func(d *deletions) {
			d.note("east", before, orphaned)
			d.noteGone("east", before, orphaned)
		}},
		"another one has the name": {happen: func(d *deletions) {
			another := deletedOwner()
			another.UID = "2"
			d.predicate("east", now).Update(event.UpdateEvent{ObjectOld: orphaned, ObjectNew: another})
		}, known: true, ask: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &deletions{
				mayLeave: func(client.Object) bool { return true }, isOthers: func(mcreconcile.ClusterName) bool { return c.others },
			}
			c.happen(d)
			if asked := d.reopen("west", now); len(asked) > 0 {
				t.Errorf("when another cluster is back, %v are asked for", asked)
			}
			asked := d.reopen("east", now)
			if ask := len(asked) == 1 && asked[0] == req; ask != c.ask || len(asked) > 1 {
				t.Errorf("%v are asked for, want it: %t", asked, c.ask)
			}
			if _, known := d.seen[req][orphaned.UID]; known != c.known {
				t.Errorf("it is known: %t, want %t", known, c.known)
			}
			for _, seen := range d.seen[req] {
				if seen.by != now {
					t.Error("the connection before is held")
				}
			}
		})
	}
}

// TestHowOwnersOfAClusterThatIsGivenAwayWentIsKnown, without its connection, and nothing else: another replica hears of the others.
func TestHowOwnersOfAClusterThatIsGivenAwayWentIsKnown(t *testing.T) {
	t.Parallel()
	d := &deletions{mayLeave: func(client.Object) bool { return true }}
	by, orphaned := &connected{}, deletedOwner(metav1.FinalizerOrphanDependents)
	goes, settled := orphaned.DeepCopy(), orphaned.DeepCopy()
	goes.Name, settled.Name = "goes", "settled"
	d.noteGone("east", by, orphaned)
	d.note("east", by, goes)
	d.settle(requestOf("east", settled), settled.UID, by)
	d.note("west", by, goes)
	d.giveAway("east")
	if len(d.seen) != 2 || d.policy(requestOf("west", goes), goes.UID) == "" {
		t.Errorf("%d owners are known, want those that are gone or of another cluster", len(d.seen))
	}
	if seen, known := d.seen[requestOf("east", orphaned)][orphaned.UID]; !known || seen.by != nil || seen.last == nil {
		t.Errorf("of the one that is gone, this is known: %+v", seen)
	}
	d.forgetOrigin("east", nil)
	if len(d.seen) != 1 {
		t.Errorf("%d owners are known, want the one of the other cluster: the one that was given away is no member any more", len(d.seen))
	}
}

// TestOwnersThatGoUnplannedTakeBoundedRoom: an event filter of the user drops that they go. What matters of others stays.
func TestOwnersThatGoUnplannedTakeBoundedRoom(t *testing.T) {
	t.Parallel()
	d := &deletions{}
	by, orphaned := &connected{}, deletedOwner(metav1.FinalizerOrphanDependents)
	d.note("east", by, orphaned)
	for i := range 3 * mostSeen {
		another := orphaned.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
		another.SetName(fmt.Sprint(i))
		if i%2 == 0 {
			d.settle(requestOf("east", another), another.GetUID(), by)
			continue
		}
		d.see("east", by, another)
		d.noteGone("east", by, another)
	}
	if len(d.seen) > mostSeen {
		t.Errorf("%d owners are known", len(d.seen))
	}
	if got := d.policy(requestOf("east", orphaned), orphaned.UID); got != metav1.DeletePropagationOrphan {
		t.Errorf("one that goes has the policy %q", got)
	}
}

// TestAWriteToAnOwnerIsOfItsClusterAlone, whatever UIDs owners of other clusters have.
func TestAWriteToAnOwnerIsOfItsClusterAlone(t *testing.T) {
	t.Parallel()
	l := newLedger()
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "2"}}
	l.writing("east", stored)(stored, nil)
	for in, passes := range map[mcreconcile.ClusterName]bool{"east": false, "west": true} {
		if l.predicate(in).Update(event.UpdateEvent{ObjectOld: &corev1.ConfigMap{}, ObjectNew: stored}) != passes {
			t.Errorf("the event of %s passes: %t", in, !passes)
		}
	}
}

// TestAnAccountOfTheConnectionBeforeForgetsNoDeletion: what it writes may fail, and the next connection tells of the owner once.
func TestAnAccountOfTheConnectionBeforeForgetsNoDeletion(t *testing.T) {
	t.Parallel()
	d := &deletions{mayLeave: func(client.Object) bool { return true }}
	before, now, owner := &connected{}, &connected{}, deletedOwner()
	d.predicate("east", before).Create(event.CreateEvent{Object: owner})
	d.predicate("east", now).Create(event.CreateEvent{Object: owner})
	d.settle(requestOf("east", owner), owner.GetUID(), before)
	d.reopen("east", now)
	if !d.isSeen("east", owner) {
		t.Error("it waits for an event that does not come")
	}
}
