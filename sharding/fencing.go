package sharding

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// buryDead removes sessions from the table that can never work again, after it has fenced those that were silent for too long.
// Each replica waits a little longer than those before it. One that cannot be fenced keeps what it owns, and stands in nobody else's way.
func (t *turn) buryDead(ctx context.Context) error {
	var errs []error
	for session := range t.peers {
		if session == t.s.name {
			continue
		}
		dead, err := t.isDead(ctx, session)
		if err != nil {
			errs = append(errs, err)
		}
		if dead && t.was.Has(session) {
			_ = t.change().Bury(session)
			t.log.Info("A replica is gone; others take over what it owned", "gone", session)
		}
	}
	return errors.Join(errs...)
}

// isDead reports whether it is proved that a session can never work again. It fences the session, if that is what is missing.
func (t *turn) isDead(ctx context.Context, session string) (bool, error) {
	wait := time.Duration(t.rank) * t.times.step
	p := t.peers[session]
	verdict, left := p.judge(session, t.now, t.times.lease, wait)
	if verdict == protocol.Bury && p.gone && t.was.Has(session) { // as the watch says
		lease, err := t.get(ctx, t.opts.leaseName(session))
		switch {
		case notfound.Is(err, t.opts.leaseName(session)):
			return true, nil
		case err != nil:
			return false, fmt.Errorf("finding out whether the session %s is there: %w", session, err)
		}
		verdict, left = t.heardOf(session, lease).judge(session, t.now, t.times.lease, wait)
	}
	switch verdict {
	case protocol.Wait:
		t.look(left)
	case protocol.Fence:
		return t.fence(ctx, session, p)
	case protocol.Bury:
		return true, nil
	}
	return false, nil
}

// heardOf notes what a live read has shown of a session.
func (t *turn) heardOf(session string, lease *coordinationv1.Lease) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sawLocked(lease)
	t.peers[session] = t.Replica.peers[session]
	return t.peers[session]
}

// fence takes the Lease from a session that was silent for too long. It does not if the session was renewed meanwhile.
func (t *turn) fence(ctx context.Context, session string, p *peer) (bool, error) {
	next := p.lease.DeepCopy()
	next.Spec.HolderIdentity = new("")
	fenced, err := ask(ctx, t.hub.writing, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return t.hub.writing.Update(ctx, next, metav1.UpdateOptions{})
	})
	switch {
	case err == nil:
		t.heardOf(session, fenced)
		t.count.fenced.Inc()
		t.event.fenced(t.lease, session, t.now.since(p.heard))
		t.log.Info("A replica was silent for too long, and is fenced", "fenced", session, "silent", t.now.since(p.heard).Round(time.Millisecond))
		return true, nil
	case apierrors.IsConflict(err): // it lives, or another was faster
		if lease, getErr := t.get(ctx, p.lease.Name); getErr == nil {
			t.look(0)
			t.heardOf(session, lease)
			return false, nil
		} else if notfound.Is(getErr, p.lease.Name) {
			return true, nil
		}
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		if t.remove(ctx, p.lease) == nil {
			t.look(0) // as the watch, and a read, will say
			return false, nil
		}
	}
	return false, fmt.Errorf("fencing the session %s, which was silent for too long: %w; what it owned has no owner until it is renewed, "+
		"or until its Lease is deleted: kubectl delete lease -n %s %s", session, err, t.opts.Namespace, p.lease.Name)
}

// remove deletes the Lease of a session as it was seen, so that it cannot be renewed any more.
func (t *turn) remove(ctx context.Context, lease *coordinationv1.Lease) error {
	_, err := ask(ctx, t.hub.writing, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, t.hub.writing.Delete(ctx, lease.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
		})
	})
	return err
}

// collect deletes Leases of sessions that are over and in no table, and forgets such sessions. One replica deletes.
func (t *turn) collect(ctx context.Context) {
	table := t.tableNow()
	for session, p := range t.peers {
		if verdict, _ := p.judge(session, t.now, t.times.lease, 0); verdict != protocol.Bury || table.Has(session) {
			continue
		}
		if !p.gone && t.rank == 0 {
			_, err := ask(ctx, t.hub.writing, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, t.hub.writing.Delete(ctx, p.lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.lease.UID}})
			})
			if err != nil && !apierrors.IsNotFound(err) {
				t.log.V(1).Info("Could not delete the Lease of a session that is over", "session", session, "error", err.Error())
				return
			}
		}
		t.mu.Lock()
		if t.Replica.peers[session] == p && p.gone {
			delete(t.Replica.peers, session)
		}
		t.mu.Unlock()
	}
}
