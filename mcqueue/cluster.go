package mcqueue

import (
	"container/heap"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// clusterState is what is known of one cluster.
type clusterState[request mcreconcile.ClusterAware[request]] struct {
	name     mcreconcile.ClusterName
	known    bool // it was paused, resumed or weighted, and not purged since: it is kept while it has nothing to do
	weight   int  // turns before the next lane's; below one for one
	depth    int  // items that are ready, also parked and held ones
	inFlight int
	failing  int // items that are delayed since a reconcile has failed
	paused   bool
	items    *item[request]
	lanes    ring[request] // the one that was served last comes last

	// Where requests have no targets, all is in one lane.
	own lane[request]
	at  target[request]

	waits     waits
	ownSeries bool // decided when the cluster is added, so that no count ever moves to or from the others

	drained []chan struct{} // closed when nothing is in flight any more
	settled []chan struct{} // closed when nothing is to be done any more, see settle
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
	c.name, c.lanes.band = name, ofCluster
	if o.targets.of == nil {
		c.at.name, c.at.lanes.band = name, ofTarget
		c.own.join(c, &c.at)
	}
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
	*c = clusterState[request]{own: lane[request]{ready: c.own.ready}}
	o.spare = c
}

// parked counts the items of a paused cluster that are ready.
func (c *clusterState[request]) parked() int {
	if !c.paused {
		return 0
	}
	return c.depth
}

// arrange arranges all lanes of a cluster.
func (c *clusterState[request]) arrange(o *order[request]) {
	for l := range c.lanes.all() {
		o.arrangeAll(l)
	}
}

// pause parks a cluster's requests, those that there are and those to come.
func (o *order[request]) pause(name mcreconcile.ClusterName) {
	c := o.cluster(name)
	c.known, c.paused = true, true
	c.arrange(o)
}

// resume ends a pause, if there is one.
func (o *order[request]) resume(name mcreconcile.ClusterName) {
	c := o.cluster(name)
	c.known, c.paused = true, false
	c.arrange(o)
}

// weigh sets how many turns a cluster has. One that has its turn loses what is left of that beyond the new number.
func (o *order[request]) weigh(name mcreconcile.ClusterName, weight int) {
	c := o.cluster(name)
	c.known, c.weight = true, weight
	for l := range c.lanes.all() {
		for b := range bands {
			l.links[b].turns = min(l.links[b].turns, l.turns())
		}
	}
}

// release forgets the weight of a cluster, and ends its pause. What it has to do stays.
func (o *order[request]) release(c *clusterState[request]) {
	c.known, c.paused, c.weight = false, false, 0
	c.arrange(o)
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
		if i.phase == delayed {
			heap.Remove(&o.delayed, i.index)
		} else {
			o.ready--
			c.depth--
		}
		if i.phase == queued {
			o.pull(i, false)
		}
		i.recover()
		o.forget(i)
		removed(i)
	}
	o.release(c)
	if c.inFlight == 0 {
		close(done)
	} else {
		c.drained = append(c.drained, done)
	}
	c.settle()
	o.retire(c)
	return done
}
