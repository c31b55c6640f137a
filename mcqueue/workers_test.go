package mcqueue

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func TestTheWorkerThatBeganToWaitLastIsWokenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		got := make(chan int)
		for worker := range 4 {
			go func() {
				if _, shutdown := q.Get(); !shutdown {
					got <- worker
				}
			}()
			synctest.Wait() // it waits
		}
		for i, want := range []int{3, 2, 1} {
			q.Add(req(fmt.Sprintf("a/%d", i)))
			if worker := <-got; worker != want {
				t.Errorf("worker %d was woken, want %d", worker, want)
			}
		}
	})
}

func TestWorkersAreWokenOnlyForWhatCanBeHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{InFlightPerCluster: 2})
		for range 9 {
			go q.Get() // each works on what it got until the end of the test
		}
		synctest.Wait()
		step := func(what string, want int, do func()) {
			t.Helper()
			q.mu.Lock()
			do()
			woken := 0
			for w := q.workers.woken; w != nil; w = w.next {
				woken++
			}
			q.unlock()
			if woken != want {
				t.Errorf("%s woke %d workers, want %d", what, woken, want)
			}
			synctest.Wait()
		}
		add := func(name string) func() {
			return func() { q.addLocked(req(name), 0, q.now(), q.now()) }
		}
		step("a request that a worker comes for already", 1, func() {
			add("c/1")()
			q.wakeLocked()
		})
		step("a request", 1, add("a/1"))
		step("the same while it is in flight", 0, add("a/1"))
		step("another of the cluster", 1, add("a/2"))
		step("one above the limit", 0, add("a/3"))
		step("a request that ends, with one above the limit", 1, func() { q.doneLocked(req("a/2")) })
		step("a request that ends, and was added meanwhile", 1, func() { q.doneLocked(req("a/1")) })
		step("the last one that ends", 0, func() { q.doneLocked(req("a/3")) })
		step("a pause", 0, func() { q.order.pause("b") })
		step("a request that is parked", 0, add("b/1"))
		step("another", 0, add("b/2"))
		step("another", 0, add("b/3"))
		step("the end of a pause", 3, func() { q.resumeLocked("b") })
	})
}

func TestNoMoreWorkersAreWokenThanMayBeInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{Workers: 2, Spare: 7})
		for range 9 {
			go q.Get()
		}
		synctest.Wait()
		q.mu.Lock()
		defer q.unlock()
		for _, name := range []string{"a/1", "b/1", "c/1"} {
			q.addLocked(req(name), 0, q.now(), q.now())
		}
		if q.workers.coming != 2 {
			t.Errorf("%d workers were woken, want 2", q.workers.coming)
		}
	})
}

// TestNoWakeUpIsLost: when nothing moves any more, no request is left that could be handed out.
func TestNoWakeUpIsLost(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) { loseNoWakeUp(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func loseNoWakeUp(t *testing.T, random *rand.Rand) {
	t.Helper()
	const clusters, names, workers, steps = 4, 5, 6, 300
	count := random.IntN(workers) // 0 for no limit
	target := map[bool]func(mcreconcile.Request) mcreconcile.ClusterName{true: targetOf}[random.IntN(2) == 0]
	q := New("", Options[mcreconcile.Request]{InFlightPerCluster: 1 + random.IntN(3), Workers: count, Spare: workers - count, Target: target})
	var working sync.WaitGroup
	for worker := range uint64(workers) {
		pace := rand.New(rand.NewPCG(random.Uint64(), worker))
		working.Go(func() {
			for r, shutdown := q.Get(); !shutdown; r, shutdown = q.Get() {
				if pace.IntN(3) == 0 {
					q.Yield(r, mcreconcile.ClusterName(fmt.Sprint(pace.IntN(clusters))))
				}
				if pace.IntN(10) == 0 {
					<-time.After(time.Duration(pace.IntN(2000)) * time.Millisecond)
				}
				if pace.IntN(3) == 0 {
					q.Reclaim(r)
				}
				if pace.IntN(3) > 0 {
					<-time.After(time.Duration(pace.IntN(20)) * time.Millisecond)
				}
				q.Done(r)
			}
		})
	}
	for range steps {
		r := req(fmt.Sprintf("%d/%d", random.IntN(clusters), random.IntN(names)))
		switch random.IntN(12) {
		case 0:
			q.AddAfter(r, time.Duration(random.IntN(30))*time.Millisecond)
		case 1:
			q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100)}, r)
		case 2:
			q.Pause(r.ClusterName)
		case 3, 4:
			q.Resume(r.ClusterName)
		case 5:
			q.Purge(r.ClusterName)
		case 6:
			<-time.After(time.Duration(random.IntN(50)) * time.Millisecond)
		default:
			q.Add(r)
		}
	}
	for cluster := range clusters {
		q.Resume(mcreconcile.ClusterName(fmt.Sprint(cluster)))
	}
	<-time.After(time.Hour) // by the clock of the test: nothing moves any more
	if left := q.Len(); left > 0 {
		t.Errorf("%d requests are left, and all workers wait", left)
	}
	q.ShutDown()
	working.Wait()
}
