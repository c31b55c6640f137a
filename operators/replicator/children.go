package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

const (
	// mostChildren is how many processes evaluate overrides, each for one namespace at a time.
	mostChildren = 4
	// mostOfOne is how many of them are for one namespace, or for all whose overrides were slow: there is always one for the others.
	mostOfOne = mostChildren - 1
	// slowAfter is after how long overrides count as slow, and remembered for how long those of their namespace do then.
	slowAfter  = mostTime / 4
	remembered = time.Minute
	// mostWorkers is how many of the controller's workers a namespace may hold, or all that are slow, with those that wait for turns. The others find
	// it busy.
	mostWorkers = 4
	// mostWait is how long a worker waits for a turn, and mostSlowWait for one of a namespace that is slow: until one of the others has ended.
	mostWait     = time.Second
	mostSlowWait = mostHeld
)

// errBusy says that a namespace has no turn now. The controller tries again, after pauses that grow.
var errBusy = fmt.Errorf("%w: other overrides of the namespace, or of others, are evaluated", dependents.ErrPending)

// children are the processes in which overrides are evaluated, for the operating system bounds what these may take: whoever writes Replicators
// writes programs. Namespaces take turns, and one has several at a time while no other waits. The zero value is ready, and may be used by several workers.
type children struct {
	mu      sync.Mutex // guards what follows, and is not held while a process starts, works or ends
	idle    []*child
	lent    int // turns that somebody has, each with a child or room for one
	slow    int // of these, by namespaces that were slow
	spaces  map[string]*space
	waiting []*waiter
	ended   bool
}

// space is a namespace of Replicators, for as long as there is something to remember.
type space struct {
	turns   int // that it has
	waiters int
	last    time.Time // when its last turn ended
	slow    time.Time // when its last slow turn ended
}

func (t *space) isSlow() bool { return time.Since(t.slow) < remembered }

func (t *space) isForgotten() bool {
	return t.turns+t.waiters == 0 && time.Since(t.last) > remembered
}

type waiter struct {
	of   *space
	most time.Duration
	turn chan *turn // closed without one if another waiter has its place
}

// turn is that of a namespace, with a child if there was one.
type turn struct {
	of      *space
	slow    bool // its namespace was, before
	wasSlow bool
	child   *child
}

// Start implements manager.Runnable: the processes end with the manager.
func (c *children) Start(ctx context.Context) error {
	<-ctx.Done()
	c.end()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: whoever evaluates overrides has processes.
func (*children) NeedLeaderElection() bool { return false }

// end ends all processes, of which there are no more afterwards.
func (c *children) end() {
	c.mu.Lock()
	c.ended = true
	all := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, one := range all {
		one.end()
	}
}

// override does a job of a namespace with objects, each of which is shown once it has its turn, and lets what comes of them be taken in their order. Where
// the overrides take too much, one is told, and nothing of those after it. The error says that nothing was done, which says nothing about the overrides.
func (c *children) override(ctx context.Context, j job, all []*unstructured.Unstructured, show shower, take taker) error {
	has, err := c.take(ctx, j.Namespace)
	if err != nil {
		return err
	}
	defer c.give(has)
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	one := has.child
	if has.child = nil; one == nil {
		if one, err = startChild(ctx); err != nil {
			return fmt.Errorf("%w: starting a process for overrides: %w", dependents.ErrPending, err)
		}
	}
	has.wasSlow = true // also where what takes an answer panics
	defer func() {
		if has.child == nil {
			one.end()
		}
	}()
	begun, next := one.cpu(), 0
	err = one.do(ctx, text, all, show, func(i int, text []byte, err error) {
		next = i + 1
		take(i, text, err)
	})
	isTheirs := err != nil && ctx.Err() == nil // and what the process has taken is not known any more
	has.wasSlow = isTheirs || one.cpu()-begun > slowAfter
	switch {
	case err == nil:
		has.child = one // it has answered all, and is for the next
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errNoTime):
		return err
	}
	take(min(next, len(all)-1), nil, err)
	return nil
}

// take waits for a turn, which the caller gives back.
func (c *children) take(ctx context.Context, namespace string) (*turn, error) {
	now, w := c.ask(namespace)
	switch {
	case now != nil:
		return now, nil
	case w == nil:
		return nil, errBusy
	}
	limit := time.NewTimer(w.most)
	defer limit.Stop()
	why := errBusy
	select {
	case now = <-w.turn:
	case <-limit.C:
	case <-ctx.Done():
		why = context.Cause(ctx)
	}
	if now == nil && !c.leave(w) {
		now = <-w.turn
	}
	if now == nil {
		return nil, why
	}
	return now, nil
}

// ask returns a turn, or else what gets one, or neither.
func (c *children) ask(namespace string) (*turn, *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, nil
	}
	t := c.spaces[namespace]
	if t == nil {
		if c.spaces == nil {
			c.spaces = map[string]*space{}
		}
		t = &space{}
		c.spaces[namespace] = t
	}
	if c.mayLocked(t) {
		return c.lendLocked(t), nil
	}
	most := mostWait
	switch {
	case !t.isSlow() && t.turns+t.waiters < mostWorkers:
	case t.isSlow() && t.turns+t.waiters == 0 && c.hasRoomLocked(t):
		most = mostSlowWait
	default:
		return nil, nil
	}
	w := &waiter{t, most, make(chan *turn, 1)}
	t.waiters++
	c.waiting = append(c.waiting, w)
	return nil, w
}

// hasRoomLocked reports whether a namespace that is slow may wait: those that are would hold workers for long, and all of them have as many as one
// that is not. The one whose last turn is longest ago takes the place of the one that has had it last.
func (c *children) hasRoomLocked(t *space) bool {
	held, last := c.slow, -1
	for i, w := range c.waiting {
		if !w.of.isSlow() {
			continue
		}
		held++
		if last < 0 || w.of.last.After(c.waiting[last].of.last) {
			last = i
		}
	}
	if held < mostWorkers {
		return true
	}
	if last < 0 || !t.last.Before(c.waiting[last].of.last) {
		return false
	}
	close(c.removeLocked(last).turn)
	return true
}

// removeLocked removes a waiter.
func (c *children) removeLocked(at int) *waiter {
	w := c.waiting[at]
	c.waiting = slices.Delete(c.waiting, at, at+1)
	w.of.waiters--
	return w
}

// leave reports whether a waiter has no turn, and gets none any more.
func (c *children) leave(w *waiter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.waiting, w)
	if at < 0 {
		return false
	}
	c.removeLocked(at)
	return true
}

// give gives a turn back, and others theirs.
func (c *children) give(has *turn) {
	c.mu.Lock()
	t := has.of
	t.turns, t.last = t.turns-1, time.Now()
	if has.wasSlow {
		t.slow = t.last
	}
	c.lent--
	if has.slow {
		c.slow--
	}
	if has.child != nil && !c.ended {
		c.idle = append(c.idle, has.child)
		has.child = nil
	}
	for w := c.nextLocked(); w >= 0; w = c.nextLocked() {
		next := c.removeLocked(w)
		next.turn <- c.lendLocked(next.of)
	}
	for name, t := range c.spaces {
		if t.isForgotten() {
			delete(c.spaces, name)
		}
	}
	c.mu.Unlock()
	if has.child != nil {
		has.child.end()
	}
}

// nextLocked returns which waiter has the next turn, negative if none: one of the namespace whose last turn is longest ago.
func (c *children) nextLocked() int {
	next := -1
	for i, w := range c.waiting {
		if c.mayLocked(w.of) && (next < 0 || w.of.last.Before(c.waiting[next].of.last)) {
			next = i
		}
	}
	return next
}

// mayLocked reports whether a namespace may have a turn now: one more than it has while nobody else waits. Those that are slow have one each, and
// one together while others wait.
func (c *children) mayLocked(t *space) bool {
	if c.ended || c.lent >= mostChildren {
		return false
	}
	if t.isSlow() {
		isQuick := func(w *waiter) bool { return !w.of.isSlow() && w.of.turns < mostOfOne }
		return t.turns == 0 && (c.slow == 0 || c.slow < mostOfOne && !slices.ContainsFunc(c.waiting, isQuick))
	}
	isOfOthers := func(w *waiter) bool { return w.of != t && w.of.turns == 0 && (c.slow == 0 || !w.of.isSlow()) }
	return t.turns == 0 || t.turns < mostOfOne && !slices.ContainsFunc(c.waiting, isOfOthers)
}

func (c *children) lendLocked(t *space) *turn {
	has := &turn{of: t, slow: t.isSlow()}
	for len(c.idle) > 0 && has.child == nil {
		last := c.idle[len(c.idle)-1]
		c.idle = c.idle[:len(c.idle)-1]
		if last.isGone() {
			last.end()
			continue
		}
		has.child = last
	}
	t.turns++
	c.lent++
	if has.slow {
		c.slow++
	}
	return has
}
