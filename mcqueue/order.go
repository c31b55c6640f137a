package mcqueue

import (
	"container/heap"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// order decides what is handed out next. It has no goroutines, locks nothing and never looks at a clock: time is an
// argument, counted from any moment, and must not go back.
//
// Every request that is queued is an item. An item is in one of three phases: in the heap of delayed items; in one of
// the two ready heaps of its lane (fresh or background), or behind another one of its flow there; or held back, because the same request is in flight.
// A lane is what a cluster has to do in a target. Without targets each cluster has one lane, and is its own target. A
// lane that has a ready item stands in the ring of the item's band, if its cluster is not paused and its target has fewer requests in flight
// than the limit. Handing out takes the first lane of a ring to whose target the flights admit one more. It passes by those
// alone whose targets have silent or slow flights; any other lane that cannot be served costs nothing, however many there are.
type order[request mcreconcile.ClusterAware[request]] struct {
	limit    int                        // of requests in flight in one target, 0 for none
	share    float64                    // of the picks that is of the background while that waits
	items    map[request]*item[request] // what is queued
	flights  flights[request]           // what was handed out
	clusters map[mcreconcile.ClusterName]*clusterState[request]
	spare    *clusterState[request] // one that is in no use, to be used again
	targets  targets[request]
	flows    flows[request]
	delayed  delayedHeap[request]
	rings    [bands]ring[request]
	sequence uint64
	credit   float64 // of the background: what it is owed of one pick
	ready    int     // items that are ready, also held back and parked ones
	series   seriesKeeper
}

// band is a class of priorities.
type band int

const (
	fresh      band = iota // priority ≥ 0: something changed
	background             // priority < 0: initial lists and resyncs
	bands
)

const (
	ofCluster = bands + iota // the lanes of a cluster
	ofTarget                 // those of a target
	rings
)

func bandOf(priority int) band {
	if priority < 0 {
		return background
	}
	return fresh
}

func newOrder[request mcreconcile.ClusterAware[request]](limit int, share float64) *order[request] {
	return &order[request]{
		limit: limit, share: share,
		rings:    [bands]ring[request]{fresh: {band: fresh}, background: {band: background}},
		items:    map[request]*item[request]{},
		flights:  flights[request]{all: map[request]*flight[request]{}},
		clusters: map[mcreconcile.ClusterName]*clusterState[request]{},
	}
}

// advance does what is due: it makes delayed items ready, and flights slow.
func (o *order[request]) advance(now time.Duration, became func(*item[request])) {
	o.flights.age(now)
	for o.delayed.Len() > 0 && o.delayed.itemHeap[0].at <= now {
		first := heap.Pop(&o.delayed).(*item[request]) //nolint:forcetypeassert // it holds nothing else
		o.makeReady(first, now)
		became(first)
	}
}

// due is when to advance next, if ever.
func (o *order[request]) due() (at time.Duration, more bool) {
	at, more = o.unblocks()
	if o.delayed.Len() == 0 {
		return at, more
	}
	first := o.delayed.itemHeap[0].at
	if !more {
		return first, true
	}
	return min(at, first), true
}

// unblocks is when a flight becomes slow, if nothing can be handed out before that but perhaps then.
func (o *order[request]) unblocks() (at time.Duration, blocked bool) {
	if o.flights.workers == 0 || o.rings[fresh].head == nil && o.rings[background].head == nil || o.hasNext() {
		return 0, false
	}
	return o.flights.ages()
}

// take hands out the next request, if there is one.
func (o *order[request]) take(now time.Duration) (i *item[request], ok bool) {
	o.flights.age(now)
	l, b, credit := o.next()
	if l == nil {
		return nil, false
	}
	o.credit = credit
	i = l.ready[b].itemHeap[0]
	o.pull(i, true)
	o.flights.begin(i, now)
	o.forget(i)
	o.ready--
	c := l.cluster
	c.depth--
	o.series.waited(c.ownSeries, &c.waits, now-i.at)

	link := &l.links[b]
	if link.turns--; link.turns <= 0 {
		link.turns = l.turns()
		o.rings[b].rotate(l) // the others' turn
	}
	c.lanes.rotate(l)
	l.target.lanes.rotate(l)
	o.fill(l.target)
	o.arrangeAll(l)
	return i, true
}

// hasNext reports whether take would hand out something.
func (o *order[request]) hasNext() bool {
	return o.first(fresh) != nil || o.first(background) != nil
}

// next chooses whose turn it is, and in which band: the fresh one, except that the background gets its share while it has
// something to do. Without anything to hand out it returns nil. credit is what the background is owed then.
func (o *order[request]) next() (l *lane[request], b band, credit float64) {
	const rounding = 1e-9 // three times a third is a pick
	change, other := o.first(fresh), o.first(background)
	switch owed := o.credit + o.share; {
	case other == nil:
		return change, fresh, o.credit
	case change == nil:
		return other, background, 0
	case owed >= 1-rounding:
		return other, background, max(0, owed-1)
	default:
		return change, fresh, owed
	}
}

// first returns the lane of a band whose turn it is among those to which the flights admit one more, or nil.
func (o *order[request]) first(b band) *lane[request] {
	head := o.rings[b].head
	if o.flights.room() <= 0 {
		return nil
	}
	for l := head; l != nil; {
		if o.flights.admit(l.target) {
			return l
		}
		if l = l.links[b].next; l == head {
			return nil
		}
	}
	return nil
}

// done notes that a request is no longer in flight, and returns since when it was. What was added meanwhile takes its
// place in the order.
func (o *order[request]) done(req request) (since time.Duration, known bool) {
	l, since, known := o.flights.end(req)
	if !known {
		return 0, false
	}
	if i, ok := o.items[req]; ok && i.phase == held {
		o.queue(i)
	}
	o.fill(l.target)
	c := l.cluster
	if c.inFlight == 0 {
		for _, drained := range c.drained {
			close(drained)
		}
		c.drained = nil
	}
	c.settle()
	o.leave(l)
	o.retire(c)
	return since, true
}

// yield makes a request in flight silent: it waits for its target, or for others. It does nothing if it is silent
// already.
func (o *order[request]) yield(req request, elsewhere bool) {
	if l, did := o.flights.yield(req, elsewhere); did {
		o.fill(l.target)
	}
}

// reclaim ends that a request in flight is silent. It counts again, and is not held up if too many do then.
func (o *order[request]) reclaim(req request) {
	if l, did := o.flights.reclaim(req); did {
		o.fill(l.target)
	}
}

func (o *order[request]) nextSequence() uint64 {
	o.sequence++
	return o.sequence
}
