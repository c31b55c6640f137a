// Package delivery delivers the events of an informer to a handler. client-go keeps two goroutines and a ring of 16 KB
// for each handler; here a handler has a goroutine only while there are events for it, and for a moment after the last.
package delivery

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// Event is what a handler is told. The zero value is nothing.
type Event struct {
	What     What
	Old, Obj any  // Old is set if Obj was updated
	Initial  bool // of what was added: it was there before the handler
	Resync   bool // of what was updated: nothing has changed
}

// What tells kinds of events apart.
type What int

// Kinds of events.
const (
	Nothing What = iota
	Added
	Updated
	Deleted
)

func (e Event) tell(h toolscache.ResourceEventHandler, log logr.Logger) {
	defer utilruntime.HandleCrashWithLogger(log) // as client-go does
	switch e.What {
	case Nothing:
	case Added:
		h.OnAdd(e.Obj, e.Initial)
	case Updated:
		h.OnUpdate(e.Old, e.Obj)
	case Deleted:
		h.OnDelete(e.Obj)
	}
}

// linger is how long a goroutine that has told all waits for more, at least; it may be twice as long. The next event of a
// burst finds its stack as large as the handler has made it: to grow a new one took 5 of the 19 µs between an event and its
// reconcile.
const linger = 100 * time.Millisecond

// Registration is a handler, and the events that it has not seen yet. It sees them in order, one at a time, and waits for no
// other handler. Its methods are safe for concurrent use.
type Registration struct {
	handler toolscache.ResourceEventHandler
	log     logr.Logger
	resyncs bool
	spawn   func(func())
	settled chan struct{} // closed once the handler has seen the initial list, or never will
	wake    chan struct{} // has room for the one call that ends the wait of the goroutine while it lingers

	mu        sync.Mutex // guards what follows
	pending   []Event
	batch     []Event // is being delivered
	goroutine goroutine
	// alarm looks whether the goroutine is still needed. It is set once for many events: a timer for each would lie
	// between the event and the next thing that this CPU does, which is the reconcile.
	alarm    *time.Timer // nil while there is no goroutine
	quiet    bool        // the goroutine has lingered since alarm was set
	removed  bool
	unseen   int  // objects of the initial list that the handler has not seen
	complete bool // the initial list is complete
}

// goroutine tells what the goroutine does that delivers.
type goroutine int8

const (
	absent goroutine = iota
	busy
	lingering // it waits for wake
	ending    // it was told to end, and goes on if there is an event before it does
)

var _ toolscache.ResourceEventHandlerRegistration = (*Registration)(nil)

// New returns a registration. spawn runs a function in a goroutine; it is called by [Registration.Add]. Without resyncs, the
// handler is told of none. A panic of the handler is logged to log, and ends the process.
func New(h toolscache.ResourceEventHandler, log logr.Logger, resyncs bool, spawn func(func())) *Registration {
	return &Registration{
		handler: h, log: log, resyncs: resyncs, spawn: spawn, settled: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (r *Registration) HasSynced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasSyncedLocked()
}

func (r *Registration) hasSyncedLocked() bool { return r.complete && r.unseen == 0 }

// HasSyncedChecker implements toolscache.ResourceEventHandlerRegistration.
func (r *Registration) HasSyncedChecker() toolscache.DoneChecker { return r }

// Name implements toolscache.DoneChecker.
func (r *Registration) Name() string { return fmt.Sprintf("event handler %T", r.handler) }

// Done implements toolscache.DoneChecker. It is closed for a handler that was removed, too: nobody is to wait for that.
func (r *Registration) Done() <-chan struct{} { return r.settled }

// Add takes an event to be delivered.
func (r *Registration) Add(e Event) {
	if r.add(e) {
		r.wake <- struct{}{} // without the lock, which the goroutine needs first of all
	}
}

// add reports whether the goroutine is to be woken.
func (r *Registration) add(e Event) (wake bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed || e.Resync && !r.resyncs {
		return false
	}
	if e.Initial {
		r.unseen++
	}
	r.pending = append(r.pending, e)
	before := r.goroutine
	r.goroutine = busy
	if before == absent {
		r.alarm = time.AfterFunc(linger, r.rung)
		r.spawn(r.deliver)
	}
	return before == lingering
}

// rung is called by the alarm. If the goroutine has lingered since it was set, it ends.
func (r *Registration) rung() {
	if r.lapses() {
		r.wake <- struct{}{}
	}
}

func (r *Registration) lapses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.goroutine == lingering && r.quiet {
		r.goroutine = ending
		return true
	}
	if r.alarm != nil {
		r.quiet = true
		r.alarm.Reset(linger)
	}
	return false
}

// deliver tells the handler until there is nothing to tell.
func (r *Registration) deliver() {
	for batch := r.next(); batch != nil; batch = r.next() {
		for _, e := range batch {
			r.tell(e)
		}
	}
}

// tell tells the handler of an event, unless it was removed.
func (r *Registration) tell(e Event) {
	if r.isRemoved() {
		return
	}
	e.tell(r.handler, r.log)
	if e.Initial {
		r.seen()
	}
}

// next returns what is to be told, and waits a while for it. If it returns nothing, the goroutine has to end.
func (r *Registration) next() []Event {
	batch, ended := r.take()
	for batch == nil && !ended {
		<-r.wake
		batch, ended = r.take()
	}
	return batch
}

// take returns what is pending. If that is nothing, the goroutine has to end, or to wait.
func (r *Registration) take() (batch []Event, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch = r.pending
	r.pending, r.batch = nil, batch
	switch {
	case batch != nil:
		r.goroutine = busy
	case r.removed || r.goroutine == ending:
		r.goroutine = absent
		r.alarm.Stop()
		r.alarm = nil
		return nil, true
	default:
		r.goroutine, r.quiet = lingering, false
	}
	return batch, false
}

// UntoldDeletions returns the objects that are deleted and of which the handler may not have heard yet.
func (r *Registration) UntoldDeletions() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone []any
	for _, e := range slices.Concat(r.batch, r.pending) {
		if e.What == Deleted {
			gone = append(gone, e.Obj)
		}
	}
	return gone
}

func (r *Registration) isRemoved() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.removed
}

// Remove ends the delivery. A call to the handler that runs goes on.
func (r *Registration) Remove() {
	if r.remove() {
		r.wake <- struct{}{}
	}
}

// remove reports whether the goroutine is to be woken.
func (r *Registration) remove() (wake bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
	r.pending = nil
	r.settleLocked()
	if r.goroutine != lingering {
		return false
	}
	r.goroutine = ending
	return true
}

func (r *Registration) seen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unseen--
	r.settleLocked()
}

// Listed notes that the initial list is complete: all of it was added.
func (r *Registration) Listed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = true
	r.settleLocked()
}

func (r *Registration) settleLocked() {
	if (r.removed || r.hasSyncedLocked()) && !toolscache.IsDone(r) {
		close(r.settled)
	}
}
