package mcqueue

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestTheFiguresOfTheOthersAreSums of each cluster's that has no series of its own.
func TestTheFiguresOfTheOthersAreSums(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{MaxClusterSeries: -1})
		<-time.After(time.Minute) // the queue's time is no longer zero
		for _, name := range []string{"a/1", "a/2", "b/1", "b/2", "c/1", "d/1", "d/2"} {
			q.Add(req(name))
		}
		q.Pause("c")
		q.Pause("d")
		<-time.After(time.Second)
		for range 3 {
			q.Get()
		}
		each, others := q.clusterStats()
		want := clusterStats{name: otherClusters, depth: 4, inFlight: 3, parked: 3, waits: waits{3, 3}}
		if len(each) > 0 || others == nil || *others != want {
			t.Errorf("the figures are %+v and %+v, want %+v", each, others, want)
		}
	})
}

func TestTheFiguresOfAClusterAreItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, Options[mcreconcile.Request]{})
		q.Resume("a") // so that it stays known
		for range 2 {
			q.Add(req("a/1"))
			<-time.After(time.Second)
			r, _ := q.Get()
			q.Done(r)
		}
		q.Add(req("a/1"))
		q.Get()
		q.Add(req("a/2"))
		each, others := q.clusterStats()
		want := []clusterStats{{name: "a", depth: 1, inFlight: 1, waits: waits{3, 2}}}
		if !slices.Equal(each, want) || others != nil {
			t.Errorf("the figures are %+v and %+v, want %+v", each, others, want)
		}
	})
}

// TestTheFiguresOfWhatIsInFlight: how many count, with and without a limit, and how long they have taken.
func TestTheFiguresOfWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, most := range []int{0, 4} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(t, Options[mcreconcile.Request]{Workers: most, Spare: most})
			for _, name := range []string{"a/1", "b/1", "c/1"} {
				q.Add(req(name))
				q.Get()
				<-time.After(time.Second)
			}
			q.Yield(req("a/1"), "a")
			if got, want := q.flightStats(), (flightStats{workers: most, counting: 2, silent: 1, slow: 2}); got != want {
				t.Errorf("with %d workers the figures are %+v, want %+v", most, got, want)
			}
			if total, longest := q.unfinishedWork(); total != 6*time.Second || longest != 3*time.Second {
				t.Errorf("they have taken %s, and one %s, want 6 and 3 seconds", total, longest)
			}
		})
	}
}

// TestPrioritiesBeyondTheMostShareASeries, as in controller-runtime's own queue.
func TestPrioritiesBeyondTheMostShareASeries(t *testing.T) {
	t.Parallel()
	controller := controllerName(t)
	q := New(controller, Options[mcreconcile.Request]{})
	defer q.ShutDown()
	depths := func() (own []float64, others float64) {
		for priority := range mostPriorities + 2 {
			own = append(own, series(t, "workqueue_depth", "controller", controller, "priority", strconv.Itoa(priority)))
		}
		return own, series(t, "workqueue_depth", "controller", controller, "priority", otherPriorities)
	}
	for priority := range mostPriorities + 2 {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, req("a/"+strconv.Itoa(priority)))
	}
	want := append(slices.Repeat([]float64{1}, mostPriorities), -1, -1)
	own, others := depths()
	if diff := cmp.Diff(want, own); diff != "" || others != 2 {
		t.Errorf("the others have a depth of %v, want 2; each (-want, +got):\n%s", others, diff)
	}
	for range mostPriorities + 1 {
		q.Get() // the highest priorities first
	}
	want = append([]float64{1}, slices.Repeat([]float64{0}, mostPriorities-1)...)
	own, others = depths()
	if diff := cmp.Diff(append(want, -1, -1), own); diff != "" || others != 0 {
		t.Errorf("once all but one are handed out the others have a depth of %v, want 0; each (-want, +got):\n%s", others, diff)
	}
}
