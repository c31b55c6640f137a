package mcqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// wantUnsettled fails the test unless so many requests of cluster "a" are to be done.
func wantUnsettled(t *testing.T, q *Queue[mcreconcile.Request], want int, when string) {
	t.Helper()
	for _, most := range []int{1, 2, 10} {
		n, some := q.Unsettled("a", most)
		if n != want || len(some) != min(want, most) {
			t.Errorf("%s: %d requests are to be done, such as %v, want %d, and at most %d to be named", when, n, some, want, most)
		}
		named := map[mcreconcile.Request]bool{}
		for _, req := range some {
			named[req] = true
		}
		if len(named) != len(some) {
			t.Errorf("%s: named are %v, want each once", when, some)
		}
	}
	select {
	case <-q.Settled("a"):
		if want > 0 {
			t.Errorf("%s: it is settled", when)
		}
	default:
		if want == 0 {
			t.Errorf("%s: it is not settled", when)
		}
	}
}

func TestAClusterIsSettledWhenNothingIsToBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		wantUnsettled(t, q, 0, "without requests")
		q.Add(req("b/other"))
		q.Get()
		q.AddAfter(req("a/later"), time.Hour)
		wantUnsettled(t, q, 0, "with one for later")
		q.Pause("a")
		q.Add(req("a/one"))
		q.Add(req("a/two"))
		wantUnsettled(t, q, 2, "with parked ones")
		q.Resume("a")
		settled := q.Settled("a")
		one, _ := q.Get()
		two, _ := q.Get()
		wantUnsettled(t, q, 2, "in flight")
		q.Add(one) // it is held back
		if n, some := q.Unsettled("a", 10); n != 3 || len(some) != 2 {
			t.Errorf("in flight, and once more: %d are to be done, of %v; want 3, of two requests", n, some)
		}
		q.Done(two)
		q.Done(one)
		q.Get()
		q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, one) // it has failed
		q.Done(one)
		wantUnsettled(t, q, 1, "after an error")
		synctest.Wait()
		<-time.After(time.Second)
		wantUnsettled(t, q, 1, "when it is tried again")
		q.Get()
		wantUnsettled(t, q, 1, "while it is tried again")
		q.AddAfter(one, time.Hour)
		select {
		case <-settled:
			t.Error("it was settled in between")
		default:
		}
		q.Done(one)
		<-settled
		wantUnsettled(t, q, 0, "in the end")
	})
}

func TestAClusterThatIsPurgedIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		q.AddRateLimited(req("a/failed"))
		q.AddAfter(req("a/failed"), time.Hour) // the earlier time holds, and the failure
		q.Add(req("a/ready"))
		wantUnsettled(t, q, 2, "before")
		settled := q.Settled("a")
		q.Purge("a")
		<-settled
		wantUnsettled(t, q, 0, "after")
		q.AddRateLimited(req("a/failed"))
		wantUnsettled(t, q, 1, "with a new one")
		q.Add(req("a/failed")) // a change does not wait
		wantUnsettled(t, q, 1, "when it is ready")
	})
}

// TestARequestThatFailsTwiceIsToBeDoneOnce, also if it is parked at that time, and never counts again when it was handed out.
func TestARequestThatFailsTwiceIsToBeDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		for range 3 {
			q.AddRateLimited(req("a/failed"))
		}
		wantUnsettled(t, q, 1, "after several errors")
		q.Pause("a")
		for _, name := range []string{"a/one", "a/two", "a/three"} {
			q.Add(req(name))
			q.AddRateLimited(req(name))
		}
		wantUnsettled(t, q, 4, "with three parked ones")
		q.Resume("a")
		<-time.After(time.Minute)
		synctest.Wait()
		for range 4 {
			q.Get()
		}
		wantUnsettled(t, q, 4, "in flight")
		for _, name := range []string{"a/failed", "a/one", "a/two", "a/three"} {
			q.Done(req(name))
		}
		wantUnsettled(t, q, 0, "in the end")
	})
}
