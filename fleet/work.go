package fleet

import (
	"context"
	"fmt"
	"sync"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/internal/life"
)

// work is something that runs for an engagement, and must end before that is drained. It is also the context of what runs,
// which ends with the work, with the context in which it began, and with the engagement. Most reconciles ask nobody for
// anything, and never wait for the end: the contexts are tied together only when somebody does.
type work struct {
	context.Context //nolint:containedctx // in which it began

	what       fmt.Stringer
	engagement context.Context //nolint:containedctx // the life of what it uses
	until      context.Context //nolint:containedctx // it is half of this very context: the engagement's, or one below it

	mu     sync.Mutex // guards what follows
	ended  bool
	tied   context.Context //nolint:containedctx // ends with both, nil if nobody has asked for the end
	cancel context.CancelCauseFunc
	stop   func() bool
}

// Done implements context.Context.
func (w *work) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tieLocked()
	return w.tied.Done()
}

// Err implements context.Context.
func (w *work) Err() error {
	if c := w.tiedOrOver(); c != nil {
		return c.Err()
	}
	return nil
}

// Value implements context.Context. The standard library gets the cause of the end by it.
func (w *work) Value(key any) any {
	switch key {
	case life.Key{}:
		return w.engagement
	case life.LeavingKey{}:
		return w.engagement.Value(key)
	}
	if (gate.Is(key) || key == life.EpochKey{}) && w.until != w.engagement { // of a reconcile; what it joins beside is done on its behalf
		return w.until.Value(key)
	}
	if c := w.tiedOrOver(); c != nil {
		return c.Value(key)
	}
	return w.Context.Value(key)
}

// tiedOrOver returns nil if nobody has asked for the end, and it has not come.
func (w *work) tiedOrOver() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.Context.Err() != nil || w.until.Err() != nil {
		w.tieLocked()
	}
	return w.tied
}

func (w *work) tieLocked() {
	if w.tied != nil {
		return
	}
	w.tied, w.cancel = context.WithCancelCause(w.Context)
	switch {
	case w.ended:
		w.cancel(nil)
	case w.until.Err() != nil:
		w.cancel(context.Cause(w.until))
	default:
		w.stop = context.AfterFunc(w.until, func() { w.cancel(context.Cause(w.until)) })
	}
}

// end ends the context. It may be called again.
func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until.Err() != nil {
		w.tieLocked() // that was the first
	}
	w.ended = true
	if w.stop != nil {
		w.stop()
	}
	if w.cancel != nil {
		w.cancel(nil)
	}
}
