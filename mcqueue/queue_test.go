package mcqueue

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func newQueue(t *testing.T, opts Options[mcreconcile.Request]) *Queue[mcreconcile.Request] {
	t.Helper()
	q := New("", opts)
	t.Cleanup(q.ShutDown)
	return q
}

// next takes a request and says when, counted from start.
func next(q *Queue[mcreconcile.Request], start time.Time) (string, time.Duration) {
	r, _ := q.Get()
	return written(r), time.Since(start)
}

func TestDelayedRequestsAreHandedOutWhenTheirTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		start := time.Now()
		q.AddAfter(req("a/late"), 30*time.Second)
		q.AddAfter(req("a/early"), 10*time.Second)
		q.AddAfter(req("b/sooner"), time.Hour)
		q.AddAfter(req("b/sooner"), 20*time.Second)
		q.AddAfter(req("b/at-once"), time.Hour)
		q.Add(req("b/at-once"))
		for _, want := range []struct {
			request string
			at      time.Duration
		}{{"b/at-once", 0}, {"a/early", 10 * time.Second}, {"b/sooner", 20 * time.Second}, {"a/late", 30 * time.Second}} {
			if got, at := next(q, start); got != want.request || at != want.at {
				t.Errorf("took %s after %s, want %s after %s", got, at, want.request, want.at)
			}
		}
		if q.Len() != 0 {
			t.Errorf("Len() = %d, want 0", q.Len())
		}
	})
}

func TestTheLongestDelayThereIsDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		start := time.Now()
		time.AfterFunc(time.Second, func() { q.Add(req("a/now")) })
		<-time.After(time.Millisecond) // the queue's time is no longer zero
		q.AddAfter(req("a/never"), math.MaxInt64)
		if got, at := next(q, start); got != "a/now" || at != time.Second {
			t.Errorf("took %s after %s, want a/now after a second", got, at)
		}
	})
}

// TestExtremeDelays: the longest one does not end, a negative one is none, and a rate limiter is heeded beside either.
func TestExtremeDelays(t *testing.T) {
	const limited = 7 * time.Second
	cases := map[string]struct {
		opts  priorityqueue.AddOpts
		never bool
		after time.Duration
	}{
		"Longest":           {opts: priorityqueue.AddOpts{After: math.MaxInt64}, never: true},
		"AlmostLongest":     {opts: priorityqueue.AddOpts{After: math.MaxInt64 - 1}, never: true},
		"Negative":          {opts: priorityqueue.AddOpts{After: -time.Hour}},
		"MostNegative":      {opts: priorityqueue.AddOpts{After: math.MinInt64}},
		"LongestAndLimited": {opts: priorityqueue.AddOpts{After: math.MaxInt64, RateLimited: true}, after: limited},
		"NegativeAndLimited": {
			opts: priorityqueue.AddOpts{After: -time.Hour, RateLimited: true}, after: limited,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[mcreconcile.Request]{
					RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](limited, limited),
				})
				<-time.After(time.Millisecond) // the queue's time is no longer zero
				start := time.Now()
				q.AddWithOpts(tc.opts, req("a/1"))
				want, wantAt := "a/1", tc.after
				if tc.never {
					want, wantAt = "a/last", 100*365*24*time.Hour
					time.AfterFunc(wantAt, func() { q.Add(req(want)) })
				}
				if got, at := next(q, start); got != want || at != wantAt {
					t.Errorf("took %s after %s, want %s after %s", got, at, want, wantAt)
				}
			})
		})
	}
}

func TestWhatIsNoShareIsTheDefault(t *testing.T) {
	for given, want := range map[float64]float64{
		0: 0.125, -0.5: 0.125, 8: 0.125, math.Inf(1): 0.125, math.NaN(): 0.125, 0.5: 0.5, 1: 1,
	} {
		if got := newQueue(t, Options[mcreconcile.Request]{BackgroundShare: given}).opts.BackgroundShare; got != want {
			t.Errorf("a BackgroundShare of %v is taken as %v, want %v", given, got, want)
		}
	}
}

// TestNoWeightStarvesAnotherCluster: whatever it is, such as a number from a stranger's label.
func TestNoWeightStarvesAnotherCluster(t *testing.T) {
	for weight, want := range map[int]int{math.MinInt: 1, -1: 1, 0: 1, 1: 1, 3: 3, 100: 100, 101: 100, math.MaxInt: 100} {
		t.Run(fmt.Sprint(weight), func(t *testing.T) {
			q := newQueue(t, Options[mcreconcile.Request]{})
			q.SetWeight("a", weight)
			for i := range 200 {
				q.Add(req(fmt.Sprintf("a/%d", i)))
			}
			q.Add(req("b/1"))
			before := 0
			for r, _ := q.Get(); r.ClusterName == "a"; r, _ = q.Get() {
				before++
			}
			if before != want {
				t.Errorf("%d requests went before another cluster's, want %d", before, want)
			}
		})
	}
}

func TestGetWaitsAndDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		got := make(chan string)
		go func() {
			r, _ := q.Get()
			got <- written(r)
		}()
		synctest.Wait() // returns only when every goroutine is blocked for good
		q.Add(req("a/1"))
		if r := <-got; r != "a/1" {
			t.Errorf("took %s, want a/1", r)
		}
	})
}

func TestAWorkerIsWokenWhenALimitOrAPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{InFlightPerCluster: 1})
		taken := crew(q, 3)
		is := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, taken()); diff != "" {
				t.Errorf("taken (-want, +got):\n%s", diff)
			}
		}
		q.Pause("b")
		q.Add(req("a/1"))
		q.Add(req("a/2"))
		q.Add(req("b/1"))
		is("a/1")
		q.Done(req("a/1"))
		is("a/1", "a/2")
		q.Resume("b")
		is("a/1", "a/2", "b/1")
		q.Add(req("b/1"))
		q.Done(req("b/1"))
		is("a/1", "a/2", "b/1", "b/1")
	})
}

// crew takes requests like controller-runtime's workers, but ends none.
func crew(q *Queue[mcreconcile.Request], n int) (taken func() []string) {
	var mu sync.Mutex
	var all []string
	for range n {
		go func() {
			for {
				r, shutdown := q.Get()
				if shutdown {
					return
				}
				mu.Lock()
				all = append(all, written(r))
				mu.Unlock()
			}
		}()
	}
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestAWorkerIsWokenWhenARequestInFlightNoLongerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{Workers: 4, Spare: 16})
		taken := crew(q, 20)
		is := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, taken()); diff != "" {
				t.Errorf("%s, taken (-want, +got):\n%s", when, diff)
			}
		}
		all := []string{"a/1", "b/1", "c/1", "d/1", "e/1", "f/1", "g/1", "h/1"}
		for _, name := range all {
			q.Add(req(name))
		}
		is("as many as there are workers", all[:4]...)
		q.Yield(req("a/1"), "a")
		is("one waits for its cluster", all[:5]...)
		q.Reclaim(req("a/1"))
		q.Done(req("a/1"))
		is("it has counted until its end", all[:5]...)
		q.Done(req("b/1"))
		is("another has ended", all[:6]...)
		<-time.After(time.Second)
		is("those left are slow", all[:7]...)
		<-time.After(time.Second)
		is("the last one is slow too", all...)
	})
}

// TestTheLastIdleWorkerIsWokenWhenTheOthersAreSlow: none was idle that the alarm could have been set for before.
func TestTheLastIdleWorkerIsWokenWhenTheOthersAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{Workers: 2, Spare: 1})
		for _, name := range []string{"a/1", "b/1", "c/1"} {
			q.Add(req(name))
		}
		start := time.Now()
		for i, want := range []time.Duration{0, 0, slowAfter} {
			time.AfterFunc(time.Minute, q.ShutDown) // instead of waiting for ever
			if _, after := next(q, start); after != want {
				t.Errorf("request %d was handed out after %s, want %s", i, after, want)
			}
		}
	})
}

// TestTheAlarmIsSetForWhatIsDueFirst: a request whose time comes, or another that becomes slow and no longer counts.
func TestTheAlarmIsSetForWhatIsDueFirst(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		do     func(q *Queue[mcreconcile.Request])
		within time.Duration
		want   string
	}{
		"ARequestBecomesSlow": {
			within: slowAfter, want: "e/1",
			do: func(q *Queue[mcreconcile.Request]) {
				q.AddAfter(req("z/1"), time.Hour)
				q.Add(req("d/1"))
				q.Add(req("e/1"))
			},
		},
		"ARequestIsDelayed": {
			within: slowAfter / 2, want: "z/1",
			do: func(q *Queue[mcreconcile.Request]) {
				<-time.After(slowAfter)
				q.Add(req("d/1"))
				synctest.Wait()
				q.Yield(req("d/1"), "d") // it will be slow a second from now, which frees nothing
				q.AddAfter(req("z/1"), slowAfter/2)
				q.Add(req("a/2"))
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[mcreconcile.Request]{Workers: 4, Spare: 16})
				taken := crew(q, 20)
				for _, name := range []string{"a/1", "b/1", "c/1"} {
					q.Add(req(name))
				}
				synctest.Wait()
				tc.do(q)
				<-time.After(tc.within)
				if all := taken(); all[len(all)-1] != tc.want {
					t.Errorf("taken in time: %q, want %s last", all, tc.want)
				}
			})
		})
	}
}

func TestAllThatBecomesServableAtOnceIsHandedOut(t *testing.T) {
	cases := map[string]struct {
		opts Options[mcreconcile.Request]
		do   func(q *Queue[mcreconcile.Request])
		want []string
	}{
		"APauseEnds": {
			do: func(q *Queue[mcreconcile.Request]) {
				q.Pause("a")
				q.AddWithOpts(priorityqueue.AddOpts{}, req("a/1"), req("a/2"), req("a/3"))
				synctest.Wait()
				q.Resume("a")
			},
			want: []string{"a/1", "a/2", "a/3"},
		},
		"DelaysEnd": {
			do: func(q *Queue[mcreconcile.Request]) {
				q.AddWithOpts(priorityqueue.AddOpts{After: time.Second}, req("a/1"), req("a/2"), req("a/3"))
				<-time.After(time.Second)
			},
			want: []string{"a/1", "a/2", "a/3"},
		},
		"OneWaitsForAnotherCluster": {
			opts: Options[mcreconcile.Request]{Workers: 4, Spare: 16, InFlightPerCluster: 1},
			do: func(q *Queue[mcreconcile.Request]) {
				q.AddWithOpts(priorityqueue.AddOpts{}, req("a/1"), req("a/2"), req("b/1"), req("b/2"))
				synctest.Wait()
				q.Yield(req("a/1"), "elsewhere")
				q.Yield(req("b/1"), "b")
			},
			want: []string{"a/1", "b/1", "a/2"},
		},
		"HalfOfTheSpareAreFreeAgain": {
			opts: Options[mcreconcile.Request]{Workers: 4, Spare: 4},
			do: func(q *Queue[mcreconcile.Request]) {
				q.AddWithOpts(priorityqueue.AddOpts{}, req("a/1"), req("b/1"))
				synctest.Wait()
				q.Yield(req("a/1"), "a")
				q.Yield(req("b/1"), "b")
				q.AddWithOpts(priorityqueue.AddOpts{}, req("a/2"), req("a/3"))
				synctest.Wait()
				q.Reclaim(req("b/1"))
			},
			want: []string{"a/1", "a/2", "a/3", "b/1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, tc.opts)
				taken := crew(q, 20)
				synctest.Wait()
				tc.do(q)
				got := taken()
				slices.Sort(got)
				slices.Sort(tc.want)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("taken (-want, +got):\n%s", diff)
				}
			})
		})
	}
}

func TestAnyNumberOfClustersThatHangLeaveAQuarterOfTheWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hanging = 200
		q := newQueue(t, Options[mcreconcile.Request]{Workers: 8, Spare: 256, InFlightPerCluster: 4})
		taken := crew(q, 264)
		for i := range hanging * 10 {
			q.Add(req(fmt.Sprintf("hanging-%d/%d", i%hanging, i)))
		}
		<-time.After(hanging * time.Second)
		before := len(taken())
		for i := range 100 {
			name := fmt.Sprintf("healthy/%d", i)
			q.Add(req(name))
			if all := taken(); len(all) != before+i+1 || all[len(all)-1] != name {
				t.Fatalf("%s was not handed out at once", name)
			}
			q.Done(req(name))
		}
	})
}

func TestSilentClustersLeaveTheWorkersToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{Workers: 8, Spare: 256, InFlightPerCluster: 4})
		var handed [2]atomic.Int64 // to clusters that are silent, and to others
		for range 264 {
			go func() {
				for {
					r, shutdown := q.Get()
					if shutdown {
						return
					}
					if r.ClusterName[0] == 'h' {
						handed[1].Add(1)
						q.Done(r)
						continue
					}
					handed[0].Add(1)
					<-time.After(10 * time.Millisecond)
					q.Yield(r, r.ClusterName)
				}
			}()
		}
		for i := range 1000 {
			q.Add(req(fmt.Sprintf("silent-%d/%d", i%100, i)))
		}
		<-time.After(time.Second)
		synctest.Wait()
		if n := handed[0].Load(); n < 100 || n > 128+100 {
			t.Errorf("%d requests of 100 silent clusters are in flight; want one of each, and more only with half of the spare", n)
		}
		for i := range 200 {
			q.Add(req(fmt.Sprintf("healthy-%d/1", i)))
		}
		synctest.Wait()
		if n := handed[1].Load(); n != 200 {
			t.Errorf("%d of 200 requests of other clusters were handed out at once", n)
		}
	})
}

func TestShutDownWakesEveryWorkerAndLosesNoDone(t *testing.T) {
	defer goleak.VerifyNone(t)
	q := New("shutdown-test", Options[mcreconcile.Request]{})
	q.Add(req("a/1"))
	r, _ := q.Get()
	drained := q.Purge("a")
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, shutdown := q.Get(); !shutdown {
				t.Error("Get returned a request from an empty queue")
			}
		})
	}
	q.AddAfter(req("a/2"), time.Hour)
	q.ShutDown()
	q.ShutDown()
	all.Wait()
	q.Add(req("a/3"))
	if q.Len() != 0 {
		t.Error("a queue that has ended takes requests")
	}
	q.Done(r)
	<-drained
}

// TestAnAlarmThatRingsAsTheQueueEndsDoesNothing: nor is it set again.
func TestAnAlarmThatRingsAsTheQueueEndsDoesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		q.AddAfter(req("a/1"), time.Second)
		q.AddAfter(req("a/2"), time.Hour)
		q.ShutDown()
		<-time.After(time.Second)
		q.ring()
		if q.Len() > 0 || q.alarm.Stop() {
			t.Errorf("%d requests became ready, or the alarm was set", q.Len())
		}
	})
}

func TestRateLimitedRequestsWaitLongerWithEachFailureUntilForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Second, time.Hour),
		})
		wait := func() time.Duration {
			start := time.Now()
			q.AddRateLimited(req("a/1"))
			r, _ := q.Get()
			q.Done(r)
			return time.Since(start)
		}
		got := make([]time.Duration, 5)
		for i := range 3 {
			got[i] = wait()
		}
		q.Forget(req("a/1"))
		got[3] = wait()
		<-q.Purge("a")
		got[4] = wait()
		if diff := cmp.Diff([]time.Duration{1e9, 2e9, 4e9, 1e9, 1e9}, got); diff != "" {
			t.Errorf("waits (-want, +got):\n%s", diff)
		}
	})
}

func TestAPurgeForgetsFailuresOfWhatIsNotQueued(t *testing.T) {
	q := newQueue(t, Options[mcreconcile.Request]{})
	q.AddRateLimited(req("a/1"))
	r, _ := q.Get()
	if q.NumRequeues(r) != 1 {
		t.Fatalf("NumRequeues = %d, want 1", q.NumRequeues(r))
	}
	drained := q.Purge("a")
	if q.NumRequeues(r) != 0 || len(q.retrying) != 0 {
		t.Errorf("the failures of a purged request are still counted")
	}
	q.Done(r)
	<-drained
}

func TestThePriorityIsHandedOutToo(t *testing.T) {
	q := newQueue(t, Options[mcreconcile.Request]{})
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(7)}, req("a/1"), req("a/2"))
	for range 2 {
		if _, priority, _ := q.GetWithPriority(); priority != 7 {
			t.Errorf("priority %d, want 7", priority)
		}
	}
}

// TestStress: under contention from all sides no request is handed out twice at once, and none is lost.
func TestStress(t *testing.T) {
	t.Run("NoLimit", func(t *testing.T) { stress(t, Options[mcreconcile.Request]{InFlightPerCluster: 3}) })
	t.Run("Workers", func(t *testing.T) {
		stress(t, Options[mcreconcile.Request]{InFlightPerCluster: 3, Workers: 3, Spare: 5})
	})
	t.Run("Flows", func(t *testing.T) {
		stress(t, Options[mcreconcile.Request]{InFlightPerCluster: 3, Flow: flowOf})
	})
	t.Run("Targets", func(t *testing.T) {
		stress(t, Options[mcreconcile.Request]{InFlightPerCluster: 3, Workers: 3, Spare: 5, Target: targetOf})
	})
}

func stress(t *testing.T, opts Options[mcreconcile.Request]) {
	t.Helper()
	defer goleak.VerifyNone(t)
	const clusters, names, workers, adders, adds = 20, 10, 8, 4, 5000
	q := New("stress-test", opts)
	var (
		inFlight sync.Map
		last     [clusters * names]atomic.Int64 // the latest add of each request
		seen     [clusters * names]atomic.Int64 // the latest add that a worker saw
		working  sync.WaitGroup
		adding   sync.WaitGroup
	)
	index := func(r mcreconcile.Request) (i int) {
		var c, n int
		if _, err := fmt.Sscanf(written(r), "%d/%d", &c, &n); err != nil {
			t.Error(err)
		}
		return c*names + n
	}
	for range workers {
		working.Go(func() {
			for {
				r, shutdown := q.Get()
				if shutdown {
					return
				}
				if _, twice := inFlight.LoadOrStore(r, true); twice {
					t.Errorf("%s was handed out twice at once", written(r))
				}
				if rand.IntN(4) == 0 {
					q.Yield(r, "elsewhere")
					runtime.Gosched()
					q.Reclaim(r)
				}
				i := index(r)
				seen[i].Store(last[i].Load())
				inFlight.Delete(r)
				q.Done(r)
			}
		})
	}
	for range adders {
		adding.Go(func() {
			for n := range adds {
				c := rand.IntN(clusters)
				r := req(fmt.Sprintf("%d/%d", c, rand.IntN(names)))
				last[index(r)].Add(1)
				switch rand.IntN(10) {
				case 0:
					q.AddAfter(r, time.Duration(rand.IntN(1000))*time.Microsecond)
				case 1:
					q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100)}, r)
				default:
					q.Add(r)
				}
				if n%97 == 0 {
					q.Pause(r.ClusterName)
					q.Len()
					q.Resume(r.ClusterName)
				}
			}
		})
	}
	adding.Wait()
	deadline := time.Now().Add(time.Minute)
	for i := range last {
		for seen[i].Load() != last[i].Load() {
			if time.Now().After(deadline) {
				t.Fatalf("the last add of request %d was never handed out", i)
			}
			pause()
		}
	}
	q.ShutDown()
	working.Wait()
}

// pause lets other goroutines run.
func pause() { <-time.After(time.Millisecond) }

func TestMetrics(t *testing.T) {
	controller := controllerName(t)
	q := New(controller, Options[mcreconcile.Request]{MaxClusterSeries: 2, Workers: 3, Spare: 3})
	for _, name := range []string{"a/1", "a/2", "b/1", "c/1", "d/1"} {
		q.Add(req(name))
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(-100)}, req("a/3"))
	q.AddAfter(req("a/4"), time.Hour)
	q.Pause("b")
	r, _ := q.Get()
	check := func(name string, want float64, labels ...string) {
		t.Helper()
		if got := series(t, name, labels...); got != want {
			t.Errorf("%s%v = %v, want %v", name, labels, got, want)
		}
	}
	check("workqueue_depth", 4, "controller", controller, "priority", "0")
	check("workqueue_depth", 1, "controller", controller, "priority", "-100")
	check("workqueue_adds_total", 6, "controller", controller)
	check("workqueue_retries_total", 1, "controller", controller)
	check("fleet_runtime_queue_depth", 2, "controller", controller, "cluster", "a")
	check("fleet_runtime_queue_in_flight", 1, "controller", controller, "cluster", "a")
	check("fleet_runtime_queue_parked", 1, "controller", controller, "cluster", "b")
	check("fleet_runtime_queue_depth", 2, "controller", controller, "cluster", "(other)")
	check("fleet_runtime_queue_workers", 3, "controller", controller)
	check("fleet_runtime_queue_counting", 1, "controller", controller)
	q.Yield(r, "a")
	check("fleet_runtime_queue_counting", 0, "controller", controller)
	check("fleet_runtime_queue_silent", 1, "controller", controller)
	check("fleet_runtime_queue_slow", 0, "controller", controller)
	q.Done(r)
	check("fleet_runtime_queue_silent", 0, "controller", controller)
	check("workqueue_work_duration_seconds", 1, "controller", controller)
	check("workqueue_queue_duration_seconds", 1, "controller", controller)
	<-q.Purge("a")
	<-q.Purge("b")
	check("fleet_runtime_queue_purged_total", 4, "controller", controller)
	check("workqueue_depth", 0, "controller", controller, "priority", "-100")
	check("fleet_runtime_queue_depth", -1, "controller", controller, "cluster", "b")
	check("fleet_runtime_queue_depth", 2, "controller", controller, "cluster", "(other)")
	q.ShutDown()
	check("fleet_runtime_queue_depth", -1, "controller", controller, "cluster", "(other)")
}

// TestTheDepthFollowsRequestsWhosePriorityRises: while they are ready they count where they are, and while they are delayed nowhere.
func TestTheDepthFollowsRequestsWhosePriorityRises(t *testing.T) {
	controller := controllerName(t)
	synctest.Test(t, func(t *testing.T) {
		q := New(controller, Options[mcreconcile.Request]{})
		defer q.ShutDown()
		add := func(priority int, after time.Duration, name string) {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority, After: after}, req(name))
		}
		const none = -1 // there is no series yet
		check := func(when string, low, normal, high float64) {
			t.Helper()
			synctest.Wait()
			for priority, want := range map[string]float64{"-100": low, "0": normal, "100": high} {
				if got := series(t, "workqueue_depth", "controller", controller, "priority", priority); got != want {
					t.Errorf("%s, %v requests of priority %s are ready, want %v", when, got, priority, want)
				}
			}
		}
		add(-100, 0, "a/ready")
		add(-100, time.Hour, "a/delayed")
		add(-100, time.Hour, "a/hastened")
		check("at first", 1, none, none)
		add(-100, 0, "a/ready")
		check("once more", 1, none, none)
		add(0, 0, "a/ready")
		check("raised", 0, 1, none)
		add(-100, 0, "a/ready")
		check("asked for with less", 0, 1, none)
		add(100, 2*time.Hour, "a/delayed")
		add(100, time.Minute, "a/hastened")
		check("with delayed ones raised", 0, 1, none)
		<-time.After(time.Minute)
		check("after a minute", 0, 1, 1)
		<-time.After(time.Hour)
		check("after an hour", 0, 1, 2)
		for range 3 {
			r, _ := q.Get()
			q.Done(r)
		}
		check("in the end", 0, 0, 0)
	})
}

// TestHowLongReconcilesTakeShowsWhileTheyRun, and no longer.
func TestHowLongReconcilesTakeShowsWhileTheyRun(t *testing.T) {
	controller := controllerName(t)
	synctest.Test(t, func(t *testing.T) {
		q := New(controller, Options[mcreconcile.Request]{})
		defer q.ShutDown()
		for _, name := range []string{"a/1", "b/1"} {
			q.Add(req(name))
			q.Get()
			<-time.After(time.Minute)
		}
		check := func(total, longest time.Duration) {
			t.Helper()
			<-time.After(unfinishedEvery)
			synctest.Wait()
			for name, want := range map[string]time.Duration{
				"workqueue_unfinished_work_seconds": total, "workqueue_longest_running_processor_seconds": longest,
			} {
				got := series(t, name, "controller", controller)
				if least := want.Seconds(); got < least || got > least+5 {
					t.Errorf("%s = %v, want about %v", name, got, least)
				}
			}
		}
		check(3*time.Minute, 2*time.Minute)
		q.Done(req("a/1"))
		check(time.Minute, time.Minute)
		q.Done(req("b/1"))
		check(0, 0)
	})
}

// controllerName is one that no other test uses, nor another run of the same: the series of a name stay in the registry of
// the process.
func controllerName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s-%d", t.Name(), time.Now().UnixNano())
}

func TestTheSumsOfTheOthersNeverFall(t *testing.T) {
	q := New("others-test", Options[mcreconcile.Request]{MaxClusterSeries: 1})
	defer q.ShutDown()
	waits := func(cluster string) float64 {
		return series(t, "fleet_runtime_queue_wait_seconds", "controller", "others-test", "cluster", cluster)
	}
	handOut := func(names ...string) {
		for _, name := range names {
			q.Resume(req(name).ClusterName)
			q.Add(req(name))
			r, _ := q.Get()
			q.Done(r)
		}
	}
	handOut("b/1", "c/1", "c/2", "a/1")
	if own, others := waits("b"), waits("(other)"); own != 1 || others != 3 {
		t.Errorf("b was handed out %v times, the others %v times; want 1 and 3: the first cluster has series of its own", own, others)
	}
	q.Purge("c")
	q.Purge("b")
	handOut("d/1")
	if own, others := waits("d"), waits("(other)"); own != 1 || others != 3 {
		t.Errorf("after others were purged d was handed out %v times, the others %v times; want 1 and 3", own, others)
	}
}

// TestTheSumsOfWaitsNeverFall: ten thousand requests that were parked for a month have waited for 800 years, which is more
// than a time.Duration holds.
func TestTheSumsOfWaitsNeverFall(t *testing.T) {
	for name, most := range map[string]int{"(other)": -1, "a": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(t, Options[mcreconcile.Request]{MaxClusterSeries: most})
				q.Pause("a")
				const parked = 10_000
				for i := range parked {
					q.Add(req(fmt.Sprintf("a/%d", i)))
				}
				<-time.After(30 * 24 * time.Hour)
				q.Resume("a")
				before := waits{}
				for range parked {
					r, _ := q.Get()
					q.Done(r)
					each, others := q.clusterStats()
					if others != nil {
						each = append(each, *others)
					}
					after := each[0].waits
					if each[0].name != name || after.count <= before.count || after.sum <= before.sum {
						t.Fatalf("the sums of %s are %+v after %+v", each[0].name, after, before)
					}
					before = after
				}
			})
		})
	}
}

// series returns the value of a series (of a histogram or summary, its count), and -1 if there is none.
func series(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.(prometheus.Gatherer).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			if hasLabels(metric, labels) {
				return metric.GetGauge().GetValue() + metric.GetCounter().GetValue() +
					float64(metric.GetHistogram().GetSampleCount()+metric.GetSummary().GetSampleCount())
			}
		}
	}
	return -1
}

func hasLabels(metric *dto.Metric, labels []string) bool {
	has := map[string]string{}
	for _, l := range metric.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if has[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// TestTheStandardMetricsAreControllerRuntimes: the queue fills the series of controller-runtime's own queue, so that
// dashboards go on working.
func TestTheStandardMetricsAreControllerRuntimes(t *testing.T) {
	controller := controllerName(t)
	theirs := priorityqueue.New[mcreconcile.Request](controller)
	defer theirs.ShutDown()
	theirs.Add(req("a/1"))
	theirs.Get()
	ours := New(controller, Options[mcreconcile.Request]{})
	defer ours.ShutDown()
	ours.Add(req("a/1"))
	ours.Get()
	for name, want := range map[string]float64{
		"workqueue_adds_total": 2, "workqueue_queue_duration_seconds": 2, "workqueue_depth": 0,
		"workqueue_retries_total": 0, "workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0,
	} {
		got := series(t, name, "controller", controller)
		if name == "workqueue_unfinished_work_seconds" || name == "workqueue_longest_running_processor_seconds" {
			got = min(got, 0) // what counts is that the series is there once
		}
		if got != want {
			t.Errorf("%s = %v after one add to each queue, want %v", name, got, want)
		}
	}
}

func TestItIsKnownOfARequestInFlightHowItWasHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		one := req("a/one")
		q.AddWithOpts(priorityqueue.AddOpts{After: time.Minute, Priority: new(-7)}, one)
		<-time.After(time.Minute + 3*time.Second)
		if _, _, known := q.InFlight(one); known {
			t.Error("a request that is not in flight is known")
		}
		next(q, time.Now())
		if priority, waited, known := q.InFlight(one); !known || priority != -7 || waited != 3*time.Second {
			t.Errorf("InFlight() = %d, %s, %t, want -7, 3s, true", priority, waited, known)
		}
		q.Done(one)
		if _, _, known := q.InFlight(one); known {
			t.Error("a request that is done is known")
		}
	})
}
