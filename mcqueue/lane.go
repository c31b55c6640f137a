package mcqueue

import "github.com/fleet-runtime/fleet-runtime/mcreconcile"

// lane is what one cluster has to do in one target. Lanes take turns.
type lane[request mcreconcile.ClusterAware[request]] struct {
	cluster *clusterState[request]
	target  *target[request]
	ready   [bands]readyHeap[request]
	links   [rings]link[request]
	uses    int // items and flights. Where requests have targets, the lane is kept as long as there are any
}

// target is a cluster in which requests are worked on.
type target[request mcreconcile.ClusterAware[request]] struct {
	name  mcreconcile.ClusterName
	lanes ring[request] // the one that was served last comes last
	full  bool          // it has as many flights as the limit allows

	inFlight, silent, elsewhere, slow int // flights that are, see flight
}

// targets are the clusters in which requests are worked on, if these may be others than the requests' own.
type targets[request mcreconcile.ClusterAware[request]] struct {
	of    func(request) mcreconcile.ClusterName // nil if each is worked on in its own cluster
	all   map[mcreconcile.ClusterName]*target[request]
	lanes map[laneKey[request]]*lane[request]
}

func newTargets[request mcreconcile.ClusterAware[request]](of func(request) mcreconcile.ClusterName) targets[request] {
	return targets[request]{of: of, all: map[mcreconcile.ClusterName]*target[request]{}, lanes: map[laneKey[request]]*lane[request]{}}
}

// laneKey tells lanes apart.
type laneKey[request mcreconcile.ClusterAware[request]] struct {
	cluster *clusterState[request]
	target  mcreconcile.ClusterName
}

// name returns in which cluster a request is worked on.
func (t *targets[request]) name(req request) mcreconcile.ClusterName {
	if t.of == nil {
		return req.Cluster()
	}
	return t.of(req)
}

// lane returns the lane of a request, and makes one if there is none.
func (o *order[request]) lane(req request) *lane[request] {
	c := o.cluster(req.Cluster())
	if o.targets.of == nil {
		return &c.own
	}
	key := laneKey[request]{c, o.targets.of(req)}
	if l, ok := o.targets.lanes[key]; ok {
		return l
	}
	t := o.targets.all[key.target]
	if t == nil {
		t = &target[request]{name: key.target, lanes: ring[request]{band: ofTarget}}
		o.targets.all[key.target] = t
	}
	l := &lane[request]{}
	o.targets.lanes[key] = l
	l.join(c, t)
	return l
}

func (l *lane[request]) join(c *clusterState[request], t *target[request]) {
	l.cluster, l.target = c, t
	c.lanes.append(l)
	t.lanes.append(l)
}

// leave ends one use of a lane. One that has no other is forgotten, unless it is its cluster's own.
func (o *order[request]) leave(l *lane[request]) {
	l.uses--
	if o.targets.of == nil || l.uses > 0 {
		return
	}
	o.arrangeAll(l) // it leaves the rings
	l.cluster.lanes.remove(l)
	l.target.lanes.remove(l)
	delete(o.targets.lanes, laneKey[request]{l.cluster, l.target.name})
	if l.target.lanes.head == nil {
		delete(o.targets.all, l.target.name)
	}
}

// turns is how many requests of the lane are handed out before the next lane's turn.
func (l *lane[request]) turns() int { return max(1, l.cluster.weight) }

// arrange puts a lane into the ring of a band, or takes it out.
func (o *order[request]) arrange(l *lane[request], b band) {
	may := l.ready[b].Len() > 0 && !l.cluster.paused && !l.target.full
	switch link := &l.links[b]; {
	case may && !link.in:
		link.turns = l.turns()
		o.rings[b].append(l)
	case !may && link.in:
		o.rings[b].remove(l)
	}
}

func (o *order[request]) arrangeAll(l *lane[request]) {
	for b := range bands {
		o.arrange(l, b)
	}
}

// fill notes whether a target has as many flights as it may. A flight that waits for other clusters does not count: that they are
// silent does not make this one wait.
func (o *order[request]) fill(t *target[request]) {
	full := o.limit > 0 && t.inFlight-t.elsewhere >= o.limit
	if full == t.full {
		return
	}
	t.full = full
	for l := range t.lanes.all() {
		o.arrangeAll(l)
	}
}
