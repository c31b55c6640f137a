package mcqueue

import (
	"iter"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ring holds the lanes that can be served in one band, in the order of their turns, or all those of a cluster or a target. Its operations
// take constant time.
type ring[request mcreconcile.ClusterAware[request]] struct {
	band band
	head *lane[request]
}

// link is a lane's place in a ring.
type link[request mcreconcile.ClusterAware[request]] struct {
	next, previous *lane[request]
	in             bool
	turns          int // that are left before the next lane's
}

// append puts a lane at the end: all others have their turn first.
func (r *ring[request]) append(l *lane[request]) {
	at := &l.links[r.band]
	at.in = true
	if r.head == nil {
		r.head, at.next, at.previous = l, l, l
		return
	}
	last := r.head.links[r.band].previous
	at.next, at.previous = r.head, last
	last.links[r.band].next = l
	r.head.links[r.band].previous = l
}

// remove takes a lane out. If it was at the head, the next one's turn has come.
func (r *ring[request]) remove(l *lane[request]) {
	at := &l.links[r.band]
	if at.next == l {
		r.head = nil
	} else {
		at.previous.links[r.band].next = at.next
		at.next.links[r.band].previous = at.previous
		if r.head == l {
			r.head = at.next
		}
	}
	*at = link[request]{}
}

// rotate puts a lane of the ring at its end. Those that were passed by keep their turn.
func (r *ring[request]) rotate(l *lane[request]) {
	if r.head == l {
		r.head = l.links[r.band].next
		return
	}
	turns := l.links[r.band].turns
	r.remove(l)
	r.append(l)
	l.links[r.band].turns = turns
}

// all iterates over the lanes of the ring, which must stay as it is meanwhile.
func (r *ring[request]) all() iter.Seq[*lane[request]] {
	return func(yield func(*lane[request]) bool) {
		for l := r.head; l != nil && yield(l); {
			if l = l.links[r.band].next; l == r.head {
				return
			}
		}
	}
}
