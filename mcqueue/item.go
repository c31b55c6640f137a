package mcqueue

import (
	"container/heap"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// item is a request that is queued.
type item[request mcreconcile.ClusterAware[request]] struct {
	request  request
	lane     *lane[request]
	priority int
	sequence uint64        // of becoming ready, or of the last rise of the priority
	at       time.Duration // when a delayed item becomes ready, or when a ready one did
	index    int           // in its heap
	phase    phase
	failed   bool // it is delayed since a reconcile has failed

	// The items of a cluster are linked, so that a purge finds them.
	next, previous *item[request]

	ahead, behind *item[request] // in its flow
}

// phase is how far an item has come.
type phase int8

const (
	delayed phase = iota
	queued        // in a ready heap of its lane, or behind another of its flow
	held          // back, while the same request is in flight
)

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

// added says what an add did.
type added int

const (
	nothingNew  added = iota
	becameReady       // also if it is parked or held back
	becameDelayed
)

// add queues a request, at once or not before readyAt. If it is queued already, the higher priority and the earlier time
// hold, and it stays where it is in the order unless its priority rises. before is the priority it had, or, if it stays
// delayed, has.
func (o *order[request]) add(req request, priority int, now, readyAt time.Duration) (did added, before int) {
	i, ok := o.items[req]
	if !ok {
		i = &item[request]{request: req, lane: o.lane(req), priority: priority}
		o.items[req] = i
		i.lane.uses++
		i.lane.cluster.link(i)
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
	return nothingNew, i.priority // it is not ready, so a metric of what is need not follow
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
	i.lane.cluster.depth++
	i.at = now
	i.recover()
	i.sequence = o.nextSequence()
	if _, busy := o.flights.all[i.request]; busy {
		i.phase = held
		return
	}
	o.queue(i)
}

func (o *order[request]) queue(i *item[request]) {
	i.phase = queued
	o.push(i)
	o.arrange(i.lane, bandOf(i.priority))
}

func (o *order[request]) unqueue(i *item[request]) {
	o.pull(i, false)
	o.arrange(i.lane, bandOf(i.priority))
}

// forget removes an item that is in no heap any more.
func (o *order[request]) forget(i *item[request]) {
	delete(o.items, i.request)
	i.lane.cluster.unlink(i)
	o.leave(i.lane)
}
