package fleet

import (
	"fmt"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// notification is an event for a handler.
type notification struct {
	what     what
	old, obj any
	initial  bool // only of what was added
	resync   bool // only of what was updated
}

type what int

const (
	nothing what = iota
	added
	updated
	deleted
)

func (n notification) tell(h toolscache.ResourceEventHandler) {
	defer utilruntime.HandleCrash()
	switch n.what {
	case nothing:
	case added:
		h.OnAdd(n.obj, n.initial)
	case updated:
		h.OnUpdate(n.old, n.obj)
	case deleted:
		h.OnDelete(n.obj)
	}
}

// registration is a handler of an informer, and the events that it has not seen yet.
type registration struct {
	handler toolscache.ResourceEventHandler
	resyncs bool
	spawn   func(func())
	synced  chan struct{} // closed once the handler has seen the initial list

	mu         sync.Mutex // guards what follows
	pending    []notification
	delivering bool // a goroutine delivers
	removed    bool
	unseen     int  // objects of the initial list that the handler has not seen
	complete   bool // the initial list is complete
}

// HasSynced implements ResourceEventHandlerRegistration.
func (r *registration) HasSynced() bool { return isClosed(r.synced) }

// HasSyncedChecker implements ResourceEventHandlerRegistration.
func (r *registration) HasSyncedChecker() toolscache.DoneChecker {
	return done{fmt.Sprintf("event handler %T", r.handler), r.synced}
}

// done is a DoneChecker.
type done struct {
	name string
	done <-chan struct{}
}

// Name implements DoneChecker.
func (d done) Name() string { return d.name }

// Done implements DoneChecker.
func (d done) Done() <-chan struct{} { return d.done }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// add has n delivered. The caller holds the lock of the informer, so that no goroutine is started once that has stopped.
func (r *registration) add(n notification) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed || n.resync && !r.resyncs {
		return
	}
	if n.initial {
		r.unseen++
	}
	r.pending = append(r.pending, n)
	if !r.delivering {
		r.delivering = true
		r.spawn(r.deliver)
	}
}

// deliver hands events to the handler until there are none.
func (r *registration) deliver() {
	for batch := r.take(); batch != nil; batch = r.take() {
		for _, n := range batch {
			if r.isRemoved() {
				return
			}
			n.tell(r.handler)
			if n.initial {
				r.seen()
			}
		}
	}
}

func (r *registration) take() []notification {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	r.pending = nil
	r.delivering = batch != nil
	return batch
}

func (r *registration) isRemoved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.removed
}

func (r *registration) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
	r.pending = nil
}

func (r *registration) seen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unseen--
	r.closeIfSyncedLocked()
}

// listed notes that the initial list is complete: all of it was added.
func (r *registration) listed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = true
	r.closeIfSyncedLocked()
}

func (r *registration) closeIfSyncedLocked() {
	if r.complete && r.unseen == 0 && !r.HasSynced() {
		close(r.synced)
	}
}
