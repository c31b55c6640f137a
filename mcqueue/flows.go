package mcqueue

import (
	"container/heap"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// flows are lists of the items that are ready: one for each lane, priority and flow, in the order of arrival. Only the first of
// a list is in its lane's heap. It gets its place there when the one before has had its turn, behind those of all other flows.
// So flows take turns. Without flows, every item is in the heap.
type flows[request mcreconcile.ClusterAware[request]] struct {
	of   func(request) string                // nil for no flows
	last map[flowKey[request]]*item[request] // of those that have any
}

func newFlows[request mcreconcile.ClusterAware[request]](of func(request) string) flows[request] {
	return flows[request]{of: of, last: map[flowKey[request]]*item[request]{}}
}

// flowKey tells flows apart.
type flowKey[request mcreconcile.ClusterAware[request]] struct {
	lane     *lane[request]
	priority int
	name     string
}

func (f *flows[request]) key(i *item[request]) flowKey[request] {
	return flowKey[request]{i.lane, i.priority, f.of(i.request)}
}

// push adds an item to those of its lane that are ready.
func (o *order[request]) push(i *item[request]) {
	ready := &i.lane.ready[bandOf(i.priority)]
	if o.flows.of == nil {
		heap.Push(ready, i)
		return
	}
	key := o.flows.key(i)
	last := o.flows.last[key]
	o.flows.last[key] = i
	if last != nil {
		last.behind, i.ahead = i, last
		return
	}
	i.sequence = o.nextSequence()
	heap.Push(ready, i)
}

// pull takes an item from those of its lane that are ready. If it was the first of its flow, the next one has its place, or
// one behind all other flows if the flow has had its turn.
func (o *order[request]) pull(i *item[request], turn bool) {
	ready := &i.lane.ready[bandOf(i.priority)]
	if o.flows.of == nil {
		heap.Remove(ready, i.index)
		return
	}
	ahead, behind := i.ahead, i.behind
	i.ahead, i.behind = nil, nil
	if behind != nil {
		behind.ahead = ahead
	} else if key := o.flows.key(i); ahead != nil {
		o.flows.last[key] = ahead
	} else {
		delete(o.flows.last, key)
	}
	switch {
	case ahead != nil:
		ahead.behind = behind
	case behind != nil:
		heap.Remove(ready, i.index)
		behind.sequence = i.sequence
		if turn {
			behind.sequence = o.nextSequence()
		}
		heap.Push(ready, behind)
	default:
		heap.Remove(ready, i.index)
	}
}
