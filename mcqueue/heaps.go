package mcqueue

import (
	"container/heap"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// itemHeap is what both heaps have in common. Items know their place in it.
type itemHeap[request mcreconcile.ClusterAware[request]] []*item[request]

func (h itemHeap[request]) Len() int { return len(h) }

func (h itemHeap[request]) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].index, h[b].index = a, b
}

func (h *itemHeap[request]) Push(x any) {
	i := x.(*item[request]) //nolint:forcetypeassert // it holds nothing else
	i.index = len(*h)
	*h = append(*h, i)
}

func (h *itemHeap[request]) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil // so that it can be collected
	*h = (*h)[:last]
	return i
}

// readyHeap has the higher priority first, and among equals what came first.
type readyHeap[request mcreconcile.ClusterAware[request]] struct{ itemHeap[request] }

func (h readyHeap[request]) Less(a, b int) bool {
	x, y := h.itemHeap[a], h.itemHeap[b]
	if x.priority != y.priority {
		return x.priority > y.priority
	}
	return x.sequence < y.sequence
}

// delayedHeap has first what becomes ready first.
type delayedHeap[request mcreconcile.ClusterAware[request]] struct{ itemHeap[request] }

func (h delayedHeap[request]) Less(a, b int) bool {
	return h.itemHeap[a].at < h.itemHeap[b].at
}

var (
	_ heap.Interface = (*readyHeap[mcreconcile.Request])(nil)
	_ heap.Interface = (*delayedHeap[mcreconcile.Request])(nil)
)
