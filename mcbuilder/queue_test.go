package mcbuilder

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestAControllerHasSpareGoroutinesUnlessItHasOneWorker(t *testing.T) {
	type options = mcqueue.Options[mcreconcile.Request]
	cases := map[string]struct {
		reason      string
		given, want options
		workers     int
	}{
		"Default":   {"All follows from the workers.", options{}, options{Workers: 8, Spare: 256, InFlightPerCluster: 4}, 8},
		"OneWorker": {"One worker is how people ask for one reconcile at once.", options{}, options{Workers: 1, InFlightPerCluster: 1}, 1},
		"Many":      {"There is a limit to the spare ones.", options{}, options{Workers: 100, Spare: 512, InFlightPerCluster: 50}, 100},
		"None":      {"Nobody yields if none are wanted.", options{Spare: -1}, options{Workers: 8, InFlightPerCluster: 4}, 8},
		"Given":     {"What is set holds.", options{Workers: 3, Spare: 5, InFlightPerCluster: 2}, options{Workers: 3, Spare: 5, InFlightPerCluster: 2}, 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := bounded(tc.given, tc.workers)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(options{}, "RateLimiter")); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// counting is a rate limiter that counts how often it was asked.
type counting struct {
	workqueue.TypedRateLimiter[mcreconcile.Request]
	asked int
}

func (c *counting) When(mcreconcile.Request) time.Duration {
	c.asked++
	return time.Hour
}

func TestTheQueueHasTheRateLimiterOfTheController(t *testing.T) {
	t.Parallel()
	limiter := &counting{}
	r := &reconciler[mcreconcile.Request]{}
	q := r.newQueue(mcqueue.Options[mcreconcile.Request]{}, logr.Discard())("", limiter)
	defer q.ShutDown()
	q.AddRateLimited(request("a", "x"))
	if limiter.asked != 1 || q.Len() != 0 {
		t.Errorf("the rate limiter was asked %d times, and %d requests are ready; want once and none", limiter.asked, q.Len())
	}
}

// TestAReconcileThatWaitsForASilentClusterYieldsItsWorker, if there are spare goroutines, whichever its own cluster is. It has the
// worker back when the cluster is heard of, and holds none when it has ended.
func TestAReconcileThatWaitsForASilentClusterYieldsItsWorker(t *testing.T) {
	t.Parallel()
	for _, own := range []fleet.ClusterName{"a", mcreconcile.LocalCluster} {
		for _, spare := range []int{0, 1} {
			t.Run(fmt.Sprintf("of %q with %d spare", own, spare), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { yields(t, own, spare) })
			})
		}
	}
}

func yields(t *testing.T, own fleet.ClusterName, spare int) {
	t.Helper()
	a := attend(t)
	a.ready("a")
	hears, ends := make(chan struct{}), make(chan struct{})
	r := a.reconciling(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
		this := pulse.From(ctx)
		this.Wait("silent")
		<-hears
		this.Heard("silent")
		<-ends
		this.Wait("silent") // and it does not hear of it before its end
		return reconcile.Result{}, nil
	})
	options := mcqueue.Options[mcreconcile.Request]{Workers: 1, Spare: spare}
	q, _ := r.newQueue(options, logr.Discard())("", nil).(*mcqueue.Queue[mcreconcile.Request])
	defer q.ShutDown()
	var handed []mcreconcile.Request
	go func() { // ends with the queue
		for {
			req, shutdown := q.Get()
			if shutdown {
				return
			}
			handed = append(handed, req)
		}
	}()
	want := func(n int, when string) {
		t.Helper()
		<-time.After(2 * pulse.SilentAfter)
		synctest.Wait()
		if len(handed) != n {
			t.Errorf("%s %q were handed out, want %d", when, handed, n)
		}
	}
	q.Add(request(own, "first"))
	want(1, "at first")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if _, err := r.Reconcile(t.Context(), request(own, "first")); err != nil {
			t.Error(err)
		}
	}()
	q.Add(request("other", "1"))
	want(1+spare, "while the cluster is silent")
	close(hears)
	synctest.Wait()
	q.Done(request("other", "1"))
	q.Add(request("other", "2"))
	want(1+spare, "while the reconcile has its worker back")
	close(ends)
	<-ended
	want(1+spare, "when the reconcile has ended and its worker has not")
	q.Done(request(own, "first"))
	want(2+spare, "when the worker is free")
}
