package mcqueue

import "github.com/fleet-runtime/fleet-runtime/mcreconcile"

// Settled returns a channel that is closed when nothing is to be done for a cluster: none of its requests is ready, parked or in
// flight, and none is delayed since its reconcile has failed. What is delayed otherwise, as by RequeueAfter, counts as done.
func (q *Queue[request]) Settled(name mcreconcile.ClusterName) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.order.settled(name)
}

// Unsettled says how many requests of a cluster keep it from being settled, and returns some of them, at most so many.
func (q *Queue[request]) Unsettled(name mcreconcile.ClusterName, most int) (n int, some []request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.order.unsettled(name, most)
}

// fail notes that a request that is queued is so since its reconcile has failed.
func (o *order[request]) fail(req request) {
	if i := o.items[req]; i != nil && i.phase == delayed && !i.failed {
		i.failed = true
		i.lane.cluster.failing++
	}
}

// recover ends that an item is delayed since its reconcile has failed.
func (i *item[request]) recover() {
	if i.failed {
		i.failed = false
		i.lane.cluster.failing--
	}
}

// toDo counts what keeps a cluster from being settled.
func (c *clusterState[request]) toDo() int { return c.depth + c.inFlight + c.failing }

// settle tells those who wait for it that nothing is to be done, if that is so.
func (c *clusterState[request]) settle() {
	if len(c.settled) == 0 || c.toDo() > 0 {
		return
	}
	for _, settled := range c.settled {
		close(settled)
	}
	c.settled = nil
}

func (o *order[request]) settled(name mcreconcile.ClusterName) <-chan struct{} {
	settled := make(chan struct{})
	c, ok := o.clusters[name]
	if !ok || c.toDo() == 0 {
		close(settled)
		return settled
	}
	c.settled = append(c.settled, settled)
	return settled
}

func (o *order[request]) unsettled(name mcreconcile.ClusterName, most int) (n int, some []request) {
	c, ok := o.clusters[name]
	if !ok {
		return 0, nil
	}
	for i := c.items; i != nil && len(some) < most; i = i.next {
		if i.phase != delayed || i.failed {
			some = append(some, i.request)
		}
	}
	for req, flight := range o.flights.all {
		if len(some) >= most {
			break
		}
		if i := o.items[req]; flight.lane.cluster == c && (i == nil || i.phase == delayed && !i.failed) {
			some = append(some, req)
		}
	}
	return c.toDo(), some
}
