package namespaces

import (
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// notice is an event for a handler.
type notice struct {
	what        what
	before, obj any  // before is set if obj was updated
	initial     bool // of what was added: it was there before the handler
}

type what int

const (
	added what = iota
	updated
	deleted
)

func (n notice) tell(h toolscache.ResourceEventHandler) {
	defer utilruntime.HandleCrash() // as client-go does for handlers
	switch n.what {
	case added:
		h.OnAdd(n.obj, n.initial)
	case updated:
		h.OnUpdate(n.before, n.obj)
	case deleted:
		h.OnDelete(n.obj)
	}
}

// registration is a handler of a member, and the events that it has not seen yet. It has a goroutine only while there are
// any. It sees them in order, one at a time, and waits for no other handler.
type registration struct {
	handler toolscache.ResourceEventHandler
	spawn   func(func())
	synced  chan struct{} // closed once the handler has seen what there was at first

	mu       sync.Mutex // guards what follows
	pending  []notice
	busy     bool // a goroutine delivers
	removed  bool
	unseen   int  // notices of what there was at first
	complete bool // no more of them come
}

var _ toolscache.ResourceEventHandlerRegistration = (*registration)(nil)

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return toolscache.IsDone(r) }

// HasSyncedChecker implements toolscache.ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker { return r }

// Name implements toolscache.DoneChecker.
func (r *registration) Name() string { return fmt.Sprintf("handler %T of a namespace", r.handler) }

// Done implements toolscache.DoneChecker.
func (r *registration) Done() <-chan struct{} { return r.synced }

// add has a notice delivered. The caller holds the lock of the feed, so that no goroutine is started after its end.
func (r *registration) add(n notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n.initial {
		r.unseen++
	}
	r.pending = append(r.pending, n)
	if !r.busy {
		r.busy = true
		r.spawn(r.deliver)
	}
}

// deliver tells the handler until there is nothing to tell.
func (r *registration) deliver() {
	for batch := r.take(); batch != nil; batch = r.take() {
		for _, n := range batch {
			if r.isRemoved() {
				return
			}
			n.tell(r.handler)
			if n.initial {
				r.saw()
			}
		}
	}
}

// take takes what is pending. With nothing left, deliver ends.
func (r *registration) take() []notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	r.pending = nil
	r.busy = batch != nil
	return batch
}

func (r *registration) isRemoved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.removed
}

// remove has nothing more told. A call that runs goes on.
func (r *registration) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
	r.pending = nil
}

func (r *registration) saw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unseen--
	r.settleLocked()
}

// listed notes that all of what there was at first was added.
func (r *registration) listed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = true
	r.settleLocked()
}

func (r *registration) settleLocked() {
	if r.complete && r.unseen == 0 && !r.HasSynced() {
		close(r.synced)
	}
}
