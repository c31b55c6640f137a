package mcqueue

import "github.com/fleet-runtime/fleet-runtime/mcreconcile"

// ring holds the clusters that can be served in one band, in the order of their turns. Its operations take constant time.
type ring[request mcreconcile.ClusterAware[request]] struct {
	band band
	head *clusterState[request]
}

// link is a cluster's place in a ring.
type link[request mcreconcile.ClusterAware[request]] struct {
	next, previous *clusterState[request]
	in             bool
	turns          int // that are left before the next cluster's
}

// append puts a cluster at the end: all others have their turn first.
func (r *ring[request]) append(c *clusterState[request]) {
	at := &c.links[r.band]
	at.in = true
	if r.head == nil {
		r.head, at.next, at.previous = c, c, c
		return
	}
	last := r.head.links[r.band].previous
	at.next, at.previous = r.head, last
	last.links[r.band].next = c
	r.head.links[r.band].previous = c
}

// remove takes a cluster out. If it was at the head, the next one's turn has come.
func (r *ring[request]) remove(c *clusterState[request]) {
	at := &c.links[r.band]
	if at.next == c {
		r.head = nil
	} else {
		at.previous.links[r.band].next = at.next
		at.next.links[r.band].previous = at.previous
		if r.head == c {
			r.head = at.next
		}
	}
	*at = link[request]{}
}

// rotate puts a cluster of the ring at its end. Those that were passed by keep their turn.
func (r *ring[request]) rotate(c *clusterState[request]) {
	if r.head == c {
		r.head = c.links[r.band].next
		return
	}
	turns := c.links[r.band].turns
	r.remove(c)
	r.append(c)
	c.links[r.band].turns = turns
}
