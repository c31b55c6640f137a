package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// Why the questions to controllers end.
var (
	errLeaveTimeout = errors.New("the time to leave is up")
	errStays        = errors.New("the member stays")
)

// depart asks the controllers until the member has left, or its time is up, and lets it go then. When ctx ends, the member stays
// or was withdrawn otherwise.
func (m *member) depart(ctx context.Context, l *leaving) {
	select {
	case <-m.fleet.elected:
	case <-ctx.Done():
		return
	}
	timeout := m.fleet.opts.LeaveTimeout
	m.logger().Info("The member leaves", "timeout", timeout.String())
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errLeaveTimeout)
	defer cancel()
	d := &departure{member: m, leaving: l, until: time.Now().Add(timeout), replayed: map[*leaver]*Engagement{}}
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { d.tellUndone(ctx) })
	for !d.ask(ctx) {
		switch why := context.Cause(ctx); {
		case errors.Is(why, errLeaveTimeout):
			d.giveUp()
		case errors.Is(why, errStays):
			d.stay()
		}
		if ctx.Err() != nil {
			return
		}
	}
	cancel()
}

// departure asks the controllers for one member that leaves.
type departure struct {
	member  *member
	leaving *leaving
	until   time.Time

	mu       sync.Mutex // guards what follows
	replayed map[*leaver]*Engagement
}

// ask asks every controller, and withdraws the member if all are done with it at the same moment. It returns false if they must
// be asked again, since there is another engagement or controller now, or ctx has ended.
func (d *departure) ask(ctx context.Context) (left bool) {
	e, leavers := d.member.toAsk()
	if e == nil && len(leavers) > 0 {
		select {
		case <-d.leaving.news:
		case <-ctx.Done():
		}
		return false
	}
	if len(leavers) > 0 {
		asking, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
		if !d.replay(asking, e, leavers) || !d.awaitDone(asking, leavers) {
			return false
		}
	}
	return d.withdraw(e, leavers)
}

// replay has all objects told to the controllers to which they were not told on this engagement yet.
func (d *departure) replay(ctx context.Context, e *Engagement, leavers []*leaver) (done bool) {
	var replaying sync.WaitGroup
	for _, l := range leavers {
		if !d.isReplayed(l, e) {
			replaying.Go(func() { d.replayTo(ctx, l, e) })
		}
	}
	replaying.Wait()
	return ctx.Err() == nil
}

// replayTo tries until it works, or ctx ends.
func (d *departure) replayTo(ctx context.Context, l *leaver, e *Engagement) {
	pauses := retry.Pauses(d.member.fleet.opts.MaxRetryPeriod)
	for {
		err := l.Replay(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			break
		}
		d.member.logger().Error(err, "Cannot tell a controller of all objects of a member that leaves; trying again", "controller", l.controller)
		retry.Pause(ctx, &pauses, nil)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replayed[l] = e
}

func (d *departure) isReplayed(l *leaver, e *Engagement) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replayed[l] == e
}

// awaitDone waits until all controllers are done at the same moment: what one does may be an event for another.
func (d *departure) awaitDone(ctx context.Context, leavers []*leaver) (done bool) {
	for !done {
		done = true
		for _, l := range leavers {
			if n, _ := l.Undone(d.member.name); n == 0 {
				continue
			}
			done = false
			if err := l.AwaitDone(ctx, d.member.name); err != nil {
				return false
			}
		}
	}
	return ctx.Err() == nil
}

// withdraw lets the member leave that the controllers are done with, unless there is something else to ask now.
func (d *departure) withdraw(e *Engagement, leavers []*leaver) (left bool) {
	m := d.member
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if d.isOverLocked() || !slices.Equal(leavers, m.fleet.leavers) || len(leavers) > 0 && m.engagement != e {
		return false
	}
	d.tellLeftLocked(e)
	d.goLocked()
	return true
}

// goLocked withdraws the member, or drains it if people let it leave: its provider reports it as ever.
func (d *departure) goLocked() {
	m := d.member
	if d.leaving.held {
		d.leaving.done = true
		m.holdDrainedLocked()
		return
	}
	m.departs = true
	m.withdrawLocked()
}

// tellLeftLocked says that the controllers are done with all objects of which they could know.
func (d *departure) tellLeftLocked(e *Engagement) {
	m := d.member
	m.logger().Info("The member has left: every controller is done with it")
	refused := e.refused()
	if refused == nil {
		m.fleet.problems.set(m.fleet.opts.Logger, leavingProblem(m.name))
		return
	}
	d.problemLocked(ReasonLeftUndone, "it has left, and what controllers have put on objects of these kinds may stay, as they may "+
		"not be listed there: "+strings.Join(refused, ", "))
}

// isOverLocked reports whether the member is not this departure's any more: it stays, has left, is drained, or is another replica's.
func (d *departure) isOverLocked() bool {
	m := d.member
	return d.leaving.done || m.endsLocked() || !m.ownedLocked() || m.leaving != d.leaving
}

// refused returns which kinds may not be listed or watched.
func (e *Engagement) refused() (kinds []string) {
	if e == nil {
		return nil
	}
	for _, n := range e.kinds.status() {
		if n.Reason == ReasonForbidden {
			kinds = append(kinds, n.Name())
		}
	}
	return kinds
}

// giveUp lets the member leave whose time is up, and tells what is undone.
func (d *departure) giveUp() {
	m, undone := d.member, d.undone()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if d.isOverLocked() {
		return
	}
	m.logger().Info("The member leaves although not all is done: its time is up", "undone", oneline.Text(undone, maxMessage))
	d.problemLocked(ReasonLeftUndone, "it has left when its time was up, and what controllers have put there may stay: "+undone)
	d.goLocked()
}

// stay tells the controllers once more of all objects of a member that stays after all: they may have taken back what they had put
// there. The next engagement tells of all anyway.
func (d *departure) stay() {
	e, leavers := d.member.toAsk()
	if e == nil {
		return
	}
	var replaying sync.WaitGroup
	for _, l := range leavers {
		replaying.Go(func() { d.replayTo(e.ctx, l, e) })
	}
	replaying.Wait()
}

// tellUndone keeps a problem of a member that takes long, until ctx ends.
func (d *departure) tellUndone(ctx context.Context) {
	look := time.NewTicker(leavePatience)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			d.tellUndoneNow()
		case <-ctx.Done():
			return
		}
	}
}

func (d *departure) tellUndoneNow() {
	m, undone := d.member, d.undone()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if !d.isOverLocked() {
		d.problemLocked(ReasonLeaving, fmt.Sprintf("it is about to leave, until %s at the latest: %s", d.until.UTC().Format(time.RFC3339), undone))
	}
}

func (d *departure) problemLocked(reason, message string) {
	p := leavingProblem(d.member.name)
	p.Reason, p.Message = reason, message
	d.member.fleet.problems.set(d.member.fleet.opts.Logger, p)
}

// undone says what keeps the member from leaving, for people.
func (d *departure) undone() string {
	e, leavers := d.member.toAsk()
	var all []string
	if state := d.member.notReady(); state != "" {
		all = append(all, state)
	}
	for _, l := range leavers {
		n, some := l.Undone(d.member.name)
		switch {
		case n > 0:
			all = append(all, fmt.Sprintf("controller %s is not done with %d requests, such as %s", l.controller, n, strings.Join(some, ", ")))
		case e != nil && !d.isReplayed(l, e):
			all = append(all, fmt.Sprintf("controller %s has not started, or does not have every object yet", l.controller))
		}
	}
	if refused := e.refused(); refused != nil {
		all = append(all, "these kinds may not be listed there: "+strings.Join(refused, ", "))
	}
	if len(all) == 0 {
		return "nothing that is known"
	}
	return strings.Join(all, "; ")
}

// notReady says in which state a member is that cannot be used now, for people. It is empty for one that can be.
func (m *member) notReady() string {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	switch {
	case m.state == Ready:
		return ""
	case m.reason == "":
		return fmt.Sprintf("it is %s", m.state)
	}
	return fmt.Sprintf("it is %s (%s)", m.state, m.reason)
}
