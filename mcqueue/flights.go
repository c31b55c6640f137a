package mcqueue

import (
	"math"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// flights are the requests that were handed out. They say how many more may be, and in which targets.
//
// A flight counts unless it is silent: then it waits for a cluster that has not answered so far. So many may count as there
// are workers. One that began longer than slowAfter ago is slow. Together the slow ones count for three quarters of the
// workers at most. When they do, what is left is for targets without a slow flight. A flight that does not count takes up
// a spare worker. When half of these are taken up, a target with a silent flight gets no other.
type flights[request mcreconcile.ClusterAware[request]] struct {
	workers int // that flights count against, 0 for no limit
	spare   int // beyond these
	all     map[request]*flight[request]
	silent  int
	slow    int              // that are not silent
	oldest  *flight[request] // of those that are not slow
	newest  *flight[request]
	unused  *flight[request] // one that is over, to be used again
}

// flight is a request that was handed out.
type flight[request mcreconcile.ClusterAware[request]] struct {
	lane      *lane[request]
	since     time.Duration
	waited    time.Duration // was ready before
	priority  int
	silent    bool
	elsewhere bool // it waits for other clusters than its target
	slow      bool

	previous, next *flight[request] // of those that are not slow, by age
}

// slowAfter is when a flight becomes slow.
const slowAfter = time.Second

// most is how many slow flights count.
func (f *flights[request]) most() int { return f.workers - max(1, f.workers/4) }

// beside is how many flights do not count.
func (f *flights[request]) beside() int { return f.silent + max(0, f.slow-f.most()) }

func (f *flights[request]) counting() int {
	if f.workers == 0 {
		return len(f.all) - f.silent
	}
	return len(f.all) - f.beside()
}

// room is how many more there may be at the moment.
func (f *flights[request]) room() int {
	if f.workers == 0 {
		return math.MaxInt
	}
	return min(f.workers-f.counting(), f.workers+f.spare-len(f.all))
}

// admit reports whether one more, if there is room for it, may be in a target.
func (f *flights[request]) admit(t *target[request]) bool {
	switch {
	case f.workers == 0:
		return true
	case t.slow > 0 && f.slow >= f.most():
		return false
	case t.silent > 0 && f.spare > 0 && 2*f.beside() >= f.spare:
		return false
	}
	return true
}

func (f *flights[request]) begin(i *item[request], now time.Duration) {
	one := f.unused
	if one == nil {
		one = &flight[request]{}
	}
	f.unused = nil
	*one = flight[request]{lane: i.lane, since: now, waited: now - i.at, priority: i.priority, previous: f.newest}
	if f.newest == nil {
		f.oldest = one
	} else {
		f.newest.next = one
	}
	f.newest = one
	f.all[i.request] = one
	i.lane.uses++
	i.lane.cluster.inFlight++
	i.lane.target.inFlight++
}

// end ends a flight, and returns its lane and since when it was. The caller ends the use of the lane.
func (f *flights[request]) end(req request) (l *lane[request], since time.Duration, known bool) {
	one, ok := f.all[req]
	if !ok {
		return nil, 0, false
	}
	f.hear(one)
	if one.slow {
		f.slow--
		one.lane.target.slow--
	} else {
		f.unlink(one)
	}
	delete(f.all, req)
	l, since = one.lane, one.since
	l.cluster.inFlight--
	l.target.inFlight--
	*one = flight[request]{}
	f.unused = one
	return l, since, true
}

// yield makes a flight silent that is not, and returns its lane.
func (f *flights[request]) yield(req request, elsewhere bool) (l *lane[request], did bool) {
	one, ok := f.all[req]
	if !ok || one.silent {
		return nil, false
	}
	l = one.lane
	one.silent, one.elsewhere = true, elsewhere
	f.silent++
	l.target.silent++
	if elsewhere {
		l.target.elsewhere++
	}
	if one.slow {
		f.slow--
	}
	return l, true
}

// reclaim makes a flight count again that is silent, and returns its lane.
func (f *flights[request]) reclaim(req request) (l *lane[request], did bool) {
	one, ok := f.all[req]
	if !ok || !one.silent {
		return nil, false
	}
	f.hear(one)
	return one.lane, true
}

func (f *flights[request]) hear(one *flight[request]) {
	if !one.silent {
		return
	}
	f.silent--
	one.lane.target.silent--
	if one.elsewhere {
		one.lane.target.elsewhere--
	}
	if one.slow {
		f.slow++
	}
	one.silent, one.elsewhere = false, false
}

// age makes slow what has become so.
func (f *flights[request]) age(now time.Duration) {
	for f.oldest != nil && f.oldest.since+slowAfter <= now {
		one := f.oldest
		f.unlink(one)
		one.slow = true
		one.lane.target.slow++
		if !one.silent {
			f.slow++
		}
	}
}

// ages is when the next flight becomes slow.
func (f *flights[request]) ages() (at time.Duration, more bool) {
	if f.oldest == nil {
		return 0, false
	}
	return f.oldest.since + slowAfter, true
}

func (f *flights[request]) unlink(one *flight[request]) {
	if one.previous == nil {
		f.oldest = one.next
	} else {
		one.previous.next = one.next
	}
	if one.next == nil {
		f.newest = one.previous
	} else {
		one.next.previous = one.previous
	}
	one.previous, one.next = nil, nil
}
