package mcqueue

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestResumeWakesAWorkerForEachRequestThatWasParked: workers that wait are handed them all at once.
func TestResumeWakesAWorkerForEachRequestThatWasParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		q.Pause("a")
		taken := make(chan string, 4)
		for i := range cap(taken) {
			q.Add(req("a/" + strconv.Itoa(i)))
			go func() {
				if r, shutdown := q.Get(); !shutdown {
					taken <- written(r)
				}
			}()
		}
		synctest.Wait()
		if len(taken) > 0 {
			t.Errorf("%d requests of a cluster that is paused were handed out", len(taken))
		}
		q.Resume("a")
		synctest.Wait()
		if len(taken) != cap(taken) {
			t.Errorf("%d of %d workers were handed a request", len(taken), cap(taken))
		}
	})
}

// TestTheEarlierOfAPauseAndTheRateLimiterHolds when a request is added with both.
func TestTheEarlierOfAPauseAndTheRateLimiterHolds(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 10 * time.Second, 40 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, Options[mcreconcile.Request]{
				RateLimiter: workqueue.NewTypedItemFastSlowRateLimiter[mcreconcile.Request](20*time.Second, 20*time.Second, 1),
			})
			<-time.After(time.Second) // the queue's time is no longer zero
			start := time.Now()
			q.AddWithOpts(priorityqueue.AddOpts{After: after, RateLimited: true}, req("a/x"))
			want := 20 * time.Second
			if after > 0 {
				want = min(want, after)
			}
			if _, at := next(q, start); at != want {
				t.Errorf("after %s: handed out after %s, want %s", after, at, want)
			}
		})
	}
}

// TestAClusterThatIsNewHasNoFiguresOfAnother: what the queue keeps of one that it has forgotten is used again.
func TestAClusterThatIsNewHasNoFiguresOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		for range 3 {
			q.Add(req("a/x"))
			<-time.After(time.Second)
			r, _ := q.Get()
			q.Done(r)
		}
		q.Pause("a")
		q.Purge("a")
		q.Resume("b")
		each, _ := q.clusterStats()
		if want := []clusterStats{{name: "b"}}; !slices.Equal(each, want) {
			t.Errorf("the figures are %+v, want %+v", each, want)
		}
	})
}

func TestAQueueSaysWhetherItHasEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(q *Queue[mcreconcile.Request]){
		"ShutDown":          (*Queue[mcreconcile.Request]).ShutDown,
		"ShutDownWithDrain": (*Queue[mcreconcile.Request]).ShutDownWithDrain,
	} {
		q := newQueue(t, Options[mcreconcile.Request]{})
		if q.ShuttingDown() {
			t.Errorf("%s: it has ended before", name)
		}
		end(q)
		if _, shutdown := q.Get(); !shutdown || !q.ShuttingDown() {
			t.Errorf("%s: it has not ended", name)
		}
	}
}
