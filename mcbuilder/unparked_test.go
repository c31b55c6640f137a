package mcbuilder

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// homes is an Ownership in which the test says whether this replica has the local cluster, and which member it has not.
type homes struct {
	fleet.Ownership

	mine    bool
	others  fleet.ClusterName
	changed func()
}

func (h *homes) isAnothers(name fleet.ClusterName) bool {
	if name == mcreconcile.LocalCluster {
		return !h.mine
	}
	return name == h.others
}

// Run implements fleet.Ownership.
func (h *homes) Run(ctx context.Context, _ cluster.Cluster, changed func()) error {
	h.changed = changed
	<-ctx.Done()
	return nil
}

// Own implements fleet.Ownership.
func (h *homes) Own(name fleet.ClusterName, _ map[string]string) fleet.Owner {
	if h.isAnothers(name) {
		return fleet.Owner{Replica: "another"}
	}
	return fleet.Owner{Replica: "this", Tenure: stay{h: h, name: name}}
}

// Forget implements fleet.Ownership.
func (*homes) Forget(fleet.ClusterName) {}

// TestARequestInAQueueOfAnotherKindIsTriedWhenItsClusterCanBeUsed, and not before: nothing parks it there.
func TestARequestInAQueueOfAnotherKindIsTriedWhenItsClusterCanBeUsed(t *testing.T) {
	t.Parallel()
	for name, begin := range map[fleet.ClusterName]func(f fleettest.Running, h *homes){
		mcreconcile.LocalCluster: func(_ fleettest.Running, h *homes) { h.mine = true; h.changed() },
		"a": func(f fleettest.Running, _ *homes) {
			_ = f.Set(fleet.Member{Name: "a", Cluster: &existing{}, Identity: "a"})
		},
	} {
		t.Run("Of"+string(name), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &homes{}
				f, end := fleettest.Run(t, fleet.Options{Ownership: h})
				defer end()
				if err := f.Set(fleet.Member{Name: "a", Err: context.Canceled}); err != nil {
					t.Fatal(err)
				}
				w := &waiting[mcreconcile.Request]{unparked: true}
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				a := attendance[mcreconcile.Request]{
					fleet: f.Fleet, controller: "c", waiting: w, leaver: newLeaver(nil, w), log: logr.Discard(), started: func(context.Context, *mcqueue.Queue[mcreconcile.Request]) {},
				}
				if err := a.Start(ctx, q); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				r := &reconciler[mcreconcile.Request]{
					inner: failing(nil), mgr: managing{fleet: f.Fleet}, part: f.Controller("c"), waiting: w, shared: true,
				}
				result, err := r.Reconcile(ctx, request(name, "x"))
				if synctest.Wait(); err != nil || result != (reconcile.Result{}) || q.Len() != 0 {
					t.Fatalf("it is tried again after %s (%v), and %d are in the queue, want that it waits", result.RequeueAfter, err, q.Len())
				}
				begin(f, h)
				if synctest.Wait(); q.Len() != 1 || len(w.needs) != 0 {
					t.Errorf("%d are in the queue, and %v wait", q.Len(), w.needs)
				}
				q.ShutDown()
				stop()
				synctest.Wait()
			})
		})
	}
}

// stay is a tenure that ends when the cluster is another replica's.
type stay struct {
	forever

	h    *homes
	name fleet.ClusterName
}

// Over implements fleet.Tenure.
func (s stay) Over() error {
	if s.h.isAnothers(s.name) {
		return errors.New("it is another replica's")
	}
	return nil
}

// forever is a tenure that does not end.
type forever struct{}

// Epoch implements fleet.Tenure.
func (forever) Epoch() int64 { return 1 }

// Remaining implements fleet.Tenure.
func (forever) Remaining() time.Duration { return time.Hour }

// Over implements fleet.Tenure.
func (forever) Over() error { return nil }

// Covers implements fleet.Tenure.
func (forever) Covers(map[string]string) bool { return true }

// Release implements fleet.Tenure.
func (forever) Release() {}
