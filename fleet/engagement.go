package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/gate"
	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/life"
)

// Engagement is one connection of a member, from connected to disengaged. A member that is connected anew gets a new
// one. It is safe for concurrent use.
type Engagement struct {
	name      ClusterName
	identity  string
	cluster   cluster.Cluster
	wire      *wire         // nil for a cluster that the provider made
	asked     client.Reader // which cluster it is, nil if the wire proves it or the provider says it
	kinds     *kinds
	tally     *tally
	informers informer.Set

	leaving atomic.Bool // the member is about to leave

	// What its probes found last. The fleet's lock guards it.
	state State
	why   error

	ctx    context.Context //nolint:containedctx // it is the life of this very object
	cancel context.CancelCauseFunc
	// background has the goroutines that serve the engagement: its cache and its probes.
	background sync.WaitGroup
	drained    func() // is called when nothing runs any more, perhaps more than once

	gate  *gate.Gate          // for what is sent on behalf of the member, nil for none
	epoch int64               // in which it is owned
	spent func(time.Duration) // is told how long reconciles have taken, nil if nobody wants to know
	began time.Time

	mu   sync.Mutex // guards what follows
	work map[*work]struct{}
	idle chan struct{} // closed when the engagement is over and no work is left
	// reconciling is the life of reconciles, which ends with the engagement, and while it is suspended.
	reconciling context.Context //nolint:containedctx // as ctx
	interrupt   context.CancelCauseFunc
}

func newEngagement(parent context.Context, name ClusterName) *Engagement {
	e := &Engagement{
		name:    name,
		state:   Ready,
		work:    map[*work]struct{}{},
		idle:    make(chan struct{}),
		began:   time.Now(),
		drained: func() {},
	}
	e.ctx, e.cancel = context.WithCancelCause(context.WithValue(parent, life.LeavingKey{}, &e.leaving))
	e.reconciling = e.ctx
	e.kinds = newKinds(e.ctx, name)
	return e
}

// Name returns the member's name.
func (e *Engagement) Name() ClusterName { return e.name }

// Identity tells which cluster it is that has the member's name, now: the UID of its namespace kube-system, or what the
// provider says, see [Member.Identity]. It is empty if that is not known, as without the right to get the namespace. It
// never changes: when another cluster answers at the member's name, that is another engagement.
func (e *Engagement) Identity() string { return e.identity }

// IdentityNow is Identity, and asks anew where nobody would notice at once that another cluster answers: in a cluster that the
// provider made and does not name. The context bounds the request.
func (e *Engagement) IdentityNow(ctx context.Context) (string, error) {
	if e.asked == nil {
		return e.identity, nil
	}
	return ReadIdentity(ctx, e.asked)
}

// Cluster returns the member's client, cache, scheme and mapper. They are usable until the engagement ends.
func (e *Engagement) Cluster() cluster.Cluster { return e.cluster }

// Context ends with the engagement. Its cause wraps [ErrDisengaged] and says why.
func (e *Engagement) Context() context.Context { return e.ctx }

// Join begins work for the engagement. The work must end with the returned context, which is a child of ctx and also ends
// with the engagement, for the same cause. The engagement is not drained before leave is called. leave ends the context, and
// may be called again. what is named where a drain takes long. An error is the cause of the end of the engagement: nothing may
// be started then.
func (e *Engagement) Join(ctx context.Context, what fmt.Stringer) (joined context.Context, leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.joinLocked(&work{Context: ctx, what: what, engagement: e.ctx, until: e.ctx})
}

// reconcile is Join for a reconcile, which also ends when the engagement is suspended. That is the error while it is.
func (e *Engagement) reconcile(ctx context.Context, what fmt.Stringer) (joined context.Context, leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.joinLocked(&work{Context: ctx, what: what, engagement: e.ctx, until: e.reconciling})
}

func (e *Engagement) joinLocked(w *work) (joined context.Context, leave func(), err error) {
	if w.until.Err() != nil {
		return nil, nil, context.Cause(w.until)
	}
	e.work[w] = struct{}{}
	return w, func() {
		w.end()
		e.leave(w)
	}, nil
}

func (e *Engagement) leave(w *work) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.work, w)
	if len(e.work) == 0 && e.ctx.Err() != nil {
		e.becomeIdleLocked()
	}
}

// suspend ends the reconciles that run, and lets none begin, until resume is called.
func (e *Engagement) suspend(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.interrupt == nil {
		e.beginReconcilesLocked()
	}
	e.interrupt(why)
}

// resume lets reconciles begin, whose requests pass the engagement's gate if it has one.
func (e *Engagement) resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gate != nil && (e.interrupt == nil || e.reconciling.Err() != nil) {
		e.beginReconcilesLocked()
	}
}

func (e *Engagement) beginReconcilesLocked() {
	life := context.WithValue(gate.With(e.ctx, e.gate), life.EpochKey{}, e.epoch)
	e.reconciling, e.interrupt = context.WithCancelCause(life)
}

// end ends the engagement for the given reason. What runs for it is told; drain waits for that.
func (e *Engagement) end(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel(fmt.Errorf("%w: %w", ErrDisengaged, why))
	if len(e.work) == 0 {
		e.becomeIdleLocked()
	}
}

// whyEnded says why the engagement was ended, which may have been for another reason than what end was called for last.
func (e *Engagement) whyEnded() string {
	return strings.TrimPrefix(message(context.Cause(e.ctx)), ErrDisengaged.Error()+": ")
}

func (e *Engagement) becomeIdleLocked() {
	select {
	case <-e.idle:
	default:
		close(e.idle)
	}
}

// drain waits until nothing runs any more for the engagement, which must have been ended. It returns an error that names
// what still runs if ctx ends first.
func (e *Engagement) drain(ctx context.Context) error {
	served := make(chan struct{})
	go func() { // it ends with the last that runs for the engagement
		defer close(served)
		<-e.idle
		e.background.Wait()
	}()
	select {
	case <-served:
		e.drained()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining cluster %q: %w while %s: it does not heed its context", e.name, context.Cause(ctx), e.busy())
	}
}

// busy says what runs for the engagement.
func (e *Engagement) busy() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.work) == 0 {
		return "its cache still runs"
	}
	running := make([]string, 0, len(e.work))
	for w := range e.work {
		running = append(running, w.what.String())
	}
	slices.Sort(running)
	const most = 3
	if more := len(running) - most; more > 0 {
		running = append(running[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(running, ", ") + " still runs"
}

// Why an engagement ends. The causes of its context wrap these beside ErrDisengaged.
var (
	errRemoved      = errors.New("the member was removed")
	errLeft         = errors.New("the member has left")
	errReplaced     = errors.New("the member was connected anew, as its description changed")
	errFilesChanged = errors.New("the member was connected anew, as files that its description names changed")
	errImpostor     = errors.New("the member was connected anew, as another cluster had answered at its name")
)
