package dependents

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestOwnersOfOneClusterDelayThoseOfAnotherByOneTurn: also those that are always back, at a target that they share, whether it is
// visited or not.
func TestOwnersOfOneClusterDelayThoseOfAnotherByOneTurn(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]task{"Placed": place, "Visited": visit, "Accounts": account} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := mcqueue.New("", workQueue())
			defer q.ShutDown()
			for n := range 10_000 {
				q.Add(workOf("busy", n, "target", task))
			}
			for n := range 100 {
				quiet := workOf("quiet", n, "target", task)
				q.Add(quiet)
				for turns := 0; ; turns++ {
					w, _ := q.Get()
					q.Done(w)
					if w == quiet {
						break
					}
					q.Add(w)
					if turns > 0 {
						t.Fatalf("the work %v has waited for more than one turn of another cluster's owners", quiet)
					}
				}
			}
		})
	}
}

func workOf(origin string, n int, in mcreconcile.ClusterName, task task) work {
	owner := mcreconcile.Request{ClusterName: mcreconcile.ClusterName(origin)}
	owner.NamespacedName = types.NamespacedName{Namespace: "default", Name: fmt.Sprint(n)}
	return work{owner: owner, in: in, task: task}
}

// TestMembersThatHangHoldUpNoOther, whether what is done there is work of the members, visits or the accounts of owners that are there: any
// number of owners have something to do in one, or in as many that all spare goroutines wait for them.
func TestMembersThatHangHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]task{"Placed": place, "Visited": visit, "Accounts": account} {
		for _, members := range []int{1, 300} {
			t.Run(fmt.Sprintf("%s/%d", name, members), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { hangIn(t, members, task) })
			})
		}
	}
}

func hangIn(t *testing.T, members int, task task) {
	t.Helper()
	const spare, timeout = 512, 10 * time.Second // the first as in mcbuilder
	opts := workQueue()
	opts.Workers, opts.Spare, opts.InFlightPerCluster = defaultWorkers, spare, defaultWorkers/2
	q := mcqueue.New("", opts)
	defer q.ShutDown()
	var hanging atomic.Int32
	done := make(chan work, 1)
	for range defaultWorkers + spare {
		go func() {
			for w, shutdown := q.Get(); !shutdown; w, shutdown = q.Get() {
				if w.in == "healthy" {
					done <- w
				} else {
					hanging.Add(1)
					<-time.After(pulse.SilentAfter)
					q.Yield(w, w.in)
					<-time.After(timeout)
					q.Reclaim(w)
				}
				q.Done(w)
			}
		}()
	}
	add := func(n int, in string) {
		var origin string
		if task == account {
			origin = in
		}
		q.Add(workOf(origin, n, mcreconcile.ClusterName(in), task))
	}
	for n := range 600 {
		add(n, fmt.Sprint("hangs-", n%members))
	}
	<-time.After(timeout / 2)
	if n := hanging.Load(); int(n) > members*defaultWorkers/2 {
		t.Errorf("%d goroutines wait for %d members", n, members)
	}
	began := time.Now()
	add(0, "healthy")
	<-done
	if waited := time.Since(began); waited > 0 {
		t.Errorf("the work in a healthy member has waited for %s", waited)
	}
	<-time.After(time.Hour) // until all goroutines wait for more
}

// TestWhoeverLeavesWaitsForOthersInShortPauses, and other work backs off.
func TestWhoeverLeavesWaitsForOthersInShortPauses(t *testing.T) {
	t.Parallel()
	limiter := workerOptions(config{}).RateLimiter
	for w, most := range map[work]time.Duration{{in: "a", task: hold}: mostHold, {in: "a"}: mostPause} {
		var pause time.Duration
		for range 20 {
			pause = limiter.When(w)
		}
		if pause != most {
			t.Errorf("the pause of %s is %s, want %s", w, pause, most)
		}
	}
}
