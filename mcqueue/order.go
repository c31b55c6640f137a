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
// the two ready heaps of its cluster (fresh or background); or held back, because the same request is in flight. A
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

// phase is how far an item has come.
type phase int8

const (
	delayed phase = iota
	queued        // in a ready heap of its cluster
	held          // back, while the same request is in flight
)

// item is a request that is queued.
type item[request mcreconcile.ClusterAware[request]] struct {
	request  request
	cluster  *clusterState[request]
	priority int
	sequence uint64        // of becoming ready, or of the last rise of the priority
	at       time.Duration // when a delayed item becomes ready, or when a ready one did
	index    int           // in its heap
	phase    phase
	failed   bool // it is delayed since a reconcile has failed

	// The items of a cluster are linked, so that a purge finds them.
	next, previous *item[request]
}

// clusterState is what is known of one cluster.
type clusterState[request mcreconcile.ClusterAware[request]] struct {
	name     mcreconcile.ClusterName
	known    bool // it was paused, resumed or weighted, and not purged since: it is kept while it has nothing to do
	weight   int  // turns before the next cluster's; below one for one
	ready    [bands]readyHeap[request]
	held     int
	inFlight int
	failing  int // items that are delayed since a reconcile has failed
	paused   bool
	items    *item[request]
	links    [bands]link[request]

	silent, elsewhere, slow int // flights that are, see flight

	waits     waits
	ownSeries bool // decided when the cluster is added, so that no count ever moves to or from the others

	drained []chan struct{} // closed when nothing is in flight any more
	settled []chan struct{} // closed when nothing is to be done any more, see settle
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

// added says what an add did.
type added int

const (
	nothingNew  added = iota
	becameReady       // also if it is parked or held back
	becameDelayed
)

// add queues a request, at once or not before readyAt. If it is queued already, the higher priority and the earlier time
// hold, and it stays where it is in the order unless its priority rises. before is the priority it had.
func (o *order[request]) add(req request, priority int, now, readyAt time.Duration) (did added, before int) {
	i, ok := o.items[req]
	if !ok {
		i = &item[request]{request: req, cluster: o.cluster(req.Cluster()), priority: priority}
		o.items[req] = i
		i.cluster.link(i)
		if readyAt > now {
			i.at, i.phase = readyAt, delayed
			heap.Push(&o.delayed, i)
			return becameDelayed, priority
		}
		o.makeReady(i, now)
		return becameReady, priority
	}

	before = i.priority
	if i.phase != delayed {
		o.raise(i, priority)
		return nothingNew, before
	}
	i.priority = max(i.priority, priority)
	switch {
	case readyAt <= now:
		heap.Remove(&o.delayed, i.index)
		o.makeReady(i, now)
		return becameReady, before
	case readyAt < i.at:
		i.at = readyAt
		heap.Fix(&o.delayed, i.index)
		return becameDelayed, before
	}
	return nothingNew, before
}

// raise raises the priority of a ready item. It goes behind those that had the priority before.
func (o *order[request]) raise(i *item[request], priority int) {
	if priority <= i.priority {
		return
	}
	if i.phase == queued {
		o.unqueue(i)
	}
	i.priority = priority
	i.sequence = o.nextSequence()
	if i.phase == queued {
		o.queue(i)
	}
}

// makeReady moves an item that is in no heap to the ready ones.
func (o *order[request]) makeReady(i *item[request], now time.Duration) {
	o.ready++
	i.at = now
	i.recover()
	i.sequence = o.nextSequence()
	if _, busy := o.flights.all[i.request]; busy {
		i.phase = held
		i.cluster.held++
		return
	}
	o.queue(i)
}

func (o *order[request]) queue(i *item[request]) {
	i.phase = queued
	b := bandOf(i.priority)
	heap.Push(&i.cluster.ready[b], i)
	o.arrange(i.cluster, b)
}

func (o *order[request]) unqueue(i *item[request]) {
	b := bandOf(i.priority)
	heap.Remove(&i.cluster.ready[b], i.index)
	o.arrange(i.cluster, b)
}

// arrange puts a cluster into the ring of a band, or takes it out. A flight that waits for other clusters than its own
// does not count against the cluster's limit: that they are silent does not make this one wait.
func (o *order[request]) arrange(c *clusterState[request], b band) {
	may := c.ready[b].Len() > 0 && !c.paused && (o.limit == 0 || c.inFlight-c.elsewhere < o.limit)
	switch link := &c.links[b]; {
	case may && !link.in:
		link.turns = c.turns()
		o.rings[b].append(c)
	case !may && link.in:
		o.rings[b].remove(c)
	}
}

func (o *order[request]) arrangeAll(c *clusterState[request]) {
	for b := range bands {
		o.arrange(c, b)
	}
}

// turns is how many requests of the cluster are handed out before the next cluster's turn.
func (c *clusterState[request]) turns() int { return max(1, c.weight) }

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
	i = heap.Pop(&c.ready[b]).(*item[request]) //nolint:forcetypeassert // it holds nothing else
	o.forget(i)
	o.ready--
	o.flights.begin(i.request, c, now)
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

// pause parks a cluster's requests, those that there are and those to come.
func (o *order[request]) pause(name mcreconcile.ClusterName) {
	c := o.cluster(name)
	c.known, c.paused = true, true
	o.arrangeAll(c)
}

// resume ends a pause, if there is one.
func (o *order[request]) resume(name mcreconcile.ClusterName) {
	c := o.cluster(name)
	c.known, c.paused = true, false
	o.arrangeAll(c)
}

// weigh sets how many turns a cluster has. One that has its turn loses what is left of that beyond the new number.
func (o *order[request]) weigh(name mcreconcile.ClusterName, weight int) {
	c := o.cluster(name)
	c.known, c.weight = true, weight
	for b := range bands {
		c.links[b].turns = min(c.links[b].turns, c.turns())
	}
}

// purge drops everything of a cluster that is not in flight, forgets its weight, and ends its pause. removed is called for each item.
// drained is closed when nothing is in flight any more.
func (o *order[request]) purge(name mcreconcile.ClusterName, removed func(*item[request])) (drained <-chan struct{}) {
	done := make(chan struct{})
	c, ok := o.clusters[name]
	if !ok {
		close(done)
		return done
	}
	for i := c.items; i != nil; i = c.items {
		switch i.phase {
		case delayed:
			heap.Remove(&o.delayed, i.index)
		case queued:
			heap.Remove(&c.ready[bandOf(i.priority)], i.index)
		case held:
			c.held--
		}
		if i.phase != delayed {
			o.ready--
		}
		i.recover()
		o.forget(i)
		removed(i)
	}
	c.known, c.paused, c.weight = false, false, 0
	o.arrangeAll(c)
	if c.inFlight == 0 {
		close(done)
	} else {
		c.drained = append(c.drained, done)
	}
	c.settle()
	o.retire(c)
	return done
}

// cluster returns the state of a cluster, and makes one if there is none.
func (o *order[request]) cluster(name mcreconcile.ClusterName) *clusterState[request] {
	if c, ok := o.clusters[name]; ok {
		return c
	}
	c := o.spare
	if c == nil {
		c = &clusterState[request]{}
	}
	o.spare = nil
	c.name = name
	o.clusters[name] = c
	c.ownSeries = o.series.add(name)
	return c
}

// retire forgets a cluster that has nothing to do, unless it is known.
func (o *order[request]) retire(c *clusterState[request]) {
	if c.known || c.items != nil || c.inFlight > 0 {
		return
	}
	delete(o.clusters, c.name)
	o.series.remove(c.ownSeries)
	*c = clusterState[request]{ready: c.ready}
	o.spare = c
}

// forget removes an item that is in no heap any more.
func (o *order[request]) forget(i *item[request]) {
	delete(o.items, i.request)
	i.cluster.unlink(i)
}

func (o *order[request]) nextSequence() uint64 {
	o.sequence++
	return o.sequence
}

// parked counts the items of a paused cluster that are ready.
func (c *clusterState[request]) parked() int {
	if !c.paused {
		return 0
	}
	return c.depth()
}

// depth counts the items that are ready, also parked and held ones.
func (c *clusterState[request]) depth() int {
	return c.ready[fresh].Len() + c.ready[background].Len() + c.held
}

func (c *clusterState[request]) link(i *item[request]) {
	i.next = c.items
	if c.items != nil {
		c.items.previous = i
	}
	c.items = i
}

func (c *clusterState[request]) unlink(i *item[request]) {
	if i.previous != nil {
		i.previous.next = i.next
	} else {
		c.items = i.next
	}
	if i.next != nil {
		i.next.previous = i.previous
	}
	i.next, i.previous = nil, nil
}
