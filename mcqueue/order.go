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
// the two ready heaps of its cluster (fresh or background), or behind another one of its flow there; or held back, because the same request is in flight. A
// cluster that has a ready item, is not paused and has fewer requests in flight than the limit stands in the ring of
// the item's band. Handing out takes the first cluster of a ring to which the flights admit one more. It passes by those
// alone that have silent or slow flights; any other cluster that cannot be served costs nothing, however many there are.
type order[request mcreconcile.ClusterAware[request]] struct {
	limit    int                        // of requests of one cluster in flight, 0 for none
	share    float64                    // of the picks that is of the background while that waits
	items    map[request]*item[request] // what is queued
	flights  flights[request]           // what was handed out
	clusters map[mcreconcile.ClusterName]*clusterState[request]
	spare    *clusterState[request] // one that is in no use, to be used again
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
	c, b, credit := o.next()
	if c == nil {
		return nil, false
	}
	o.credit = credit
	i = c.ready[b].itemHeap[0]
	o.pull(i, true)
	o.forget(i)
	o.ready--
	o.flights.begin(i, now)
	o.series.waited(c.ownSeries, &c.waits, now-i.at)

	link := &c.links[b]
	if link.turns--; link.turns <= 0 {
		link.turns = c.turns()
		o.rings[b].rotate(c) // the others' turn
	}
	o.arrangeAll(c)
	return i, true
}

// hasNext reports whether take would hand out something.
func (o *order[request]) hasNext() bool {
	return o.first(fresh) != nil || o.first(background) != nil
}

// next chooses whose turn it is, and in which band: the fresh one, except that the background gets its share while it has
// something to do. Without anything to hand out it returns nil. credit is what the background is owed then.
func (o *order[request]) next() (c *clusterState[request], b band, credit float64) {
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

// first returns the cluster of a band whose turn it is among those to which the flights admit one more, or nil.
func (o *order[request]) first(b band) *clusterState[request] {
	head := o.rings[b].head
	if o.flights.room() <= 0 {
		return nil
	}
	for c := head; c != nil; {
		if o.flights.admit(c) {
			return c
		}
		if c = c.links[b].next; c == head {
			return nil
		}
	}
	return nil
}

// done notes that a request is no longer in flight, and returns since when it was. What was added meanwhile takes its
// place in the order.
func (o *order[request]) done(req request) (since time.Duration, known bool) {
	c, since, known := o.flights.end(req)
	if !known {
		return 0, false
	}
	if i, ok := o.items[req]; ok && i.phase == held {
		c.held--
		o.queue(i)
	}
	o.arrangeAll(c)
	if c.inFlight == 0 {
		for _, drained := range c.drained {
			close(drained)
		}
		c.drained = nil
	}
	c.settle()
	o.retire(c)
	return since, true
}

// yield makes a request in flight silent: it waits for its own cluster, or for others. It does nothing if it is silent
// already.
func (o *order[request]) yield(req request, elsewhere bool) {
	if c, did := o.flights.yield(req, elsewhere); did {
		o.arrangeAll(c)
	}
}

// reclaim ends that a request in flight is silent. It counts again, and is not held up if too many do then.
func (o *order[request]) reclaim(req request) {
	if c, did := o.flights.reclaim(req); did {
		o.arrangeAll(c)
	}
}

func (o *order[request]) nextSequence() uint64 {
	o.sequence++
	return o.sequence
}
