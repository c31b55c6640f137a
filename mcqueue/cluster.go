package mcqueue

import (
	"container/heap"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// clusterState is what is known of one cluster.
type clusterState[request mcreconcile.ClusterAware[request]] struct {
	name     mcreconcile.ClusterName
	known    bool // it was paused, resumed or weighted, and not purged since: it is kept while it has nothing to do
	weight   int  // turns before the next cluster's; below one for one
	ready    [bands]readyHeap[request]
	behind   int // items that are ready, behind another of their flow
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

// turns is how many requests of the cluster are handed out before the next cluster's turn.
func (c *clusterState[request]) turns() int { return max(1, c.weight) }

// depth counts the items that are ready, also parked and held ones.
func (c *clusterState[request]) depth() int {
	return c.ready[fresh].Len() + c.ready[background].Len() + c.behind + c.held
}

// parked counts the items of a paused cluster that are ready.
func (c *clusterState[request]) parked() int {
	if !c.paused {
		return 0
	}
	return c.depth()
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

// release forgets the weight of a cluster, and ends its pause. What it has to do stays.
func (o *order[request]) release(c *clusterState[request]) {
	c.known, c.paused, c.weight = false, false, 0
	o.arrangeAll(c)
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
			o.pull(i, false)
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
