package fleet

import (
	"context"
	"sync"
	"time"
)

// predecessor returns the engagement whose place another one is to take, or nil.
func (m *member) predecessor() *Engagement {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.engagement == nil || m.engagement.ctx.Err() != nil {
		return nil
	}
	return m.engagement
}

// handOver publishes an engagement in the place of the one before. If that one is of another cluster, nothing of it may
// be left when the new one begins: neither a reconcile nor a request.
func (m *member) handOver(ctx context.Context, described Member, before, e *Engagement) error {
	if before != nil && !e.takesOver(before) {
		if err := m.giveUp(described, before, e); err != nil {
			return err
		}
		m.awaitDrain(context.WithoutCancel(ctx), before)
		m.fleet.mu.Lock()
		m.engagement = nil
		m.fleet.mu.Unlock()
	}
	return m.engaged(described, e)
}

// giveUp ends an engagement since its cluster is no longer the member's, unless the description is outdated, or the other
// cluster is refused.
func (m *member) giveUp(described Member, before, e *Engagement) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	if m.isOutdatedLocked(described) {
		return errOutdated
	}
	if twins := m.fleet.identities.othersLocked(e); len(twins) > 0 && m.fleet.opts.RefuseDuplicates {
		return m.failedLocked(&duplicateError{of: twins[0]})
	}
	another := &anotherClusterError{known: before.identity, now: e.identity}
	m.logger().Info("Disengaged", "why", another.Error())
	m.setStateLocked(Draining, ReasonAnotherCluster, message(another))
	m.fleet.notIdentifiedLocked(before)
	before.end(another)
	return nil
}

// engaged publishes an engagement, unless the description is outdated.
func (m *member) engaged(described Member, e *Engagement) error {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.interrupt = func() {}
	if m.isOutdatedLocked(described) {
		return errOutdated
	}
	twins := m.fleet.identities.othersLocked(e)
	if len(twins) > 0 && m.fleet.opts.RefuseDuplicates {
		return m.failedLocked(&duplicateError{of: twins[0]})
	}
	before := m.engagement
	if before != nil {
		before.end(m.whyReplacedLocked(described))
		m.logger().Info("Disengaged", "why", before.whyEnded())
	}
	m.engagement, m.engagedAs, m.impostor = e, &described, false
	m.measured.engagedLocked(e)
	e.leaving.Store(m.leaving != nil)
	m.leaving.wake()
	m.logEngagedLocked(e, twins)
	m.attempts, m.problem = 0, problem{}
	m.publishLocked(e)            // it may have fallen silent while its caches were filled
	m.fleet.changedLocked(m.name) // a replaced engagement is news, although the state is the same
	m.fleet.identifiedLocked(e)   // before the other is not any more: that they have twins does not end
	if before != nil {
		m.fleet.notIdentifiedLocked(before)
		m.replaced.Go(func() { m.awaitDrain(context.Background(), before) })
	}
	e.addLateIndexes()
	return nil
}

// whyReplacedLocked says why another engagement, as described, takes the place of the one that there is.
func (m *member) whyReplacedLocked(described Member) error {
	switch {
	case m.impostor:
		return errImpostor
	case sameAccess(*m.engagedAs, described):
		return errFilesChanged
	default:
		return errReplaced
	}
}

func (m *member) logEngagedLocked(e *Engagement, twins []ClusterName) {
	values := []any{"attempts", m.attempts, "identity", e.identity}
	if len(twins) > 0 {
		values = append(values, "duplicates", twins)
	}
	m.logger().Info("Engaged", values...)
}

// keepLost makes the informers of an engagement, which may be nil, keep what goes from now on.
func (e *Engagement) keepLost() {
	if e != nil {
		e.informers.KeepLost()
	}
}

// dropLost ends keepLost.
func (e *Engagement) dropLost() {
	if e != nil {
		e.informers.DropLost()
	}
}

// inherit prepares an engagement to take the place of one before, which may be nil, unless that is known to be another cluster's.
func (e *Engagement) inherit(before *Engagement) {
	if before != nil && (before.identity == e.identity || before.identity == "" || e.identity == "") {
		e.informers.Inherit(&before.informers)
	}
}

// takesOver reports whether an engagement takes over what the one before leaves. From another cluster it takes nothing.
func (e *Engagement) takesOver(before *Engagement) bool {
	same := e.isOf(before)
	if !same {
		e.informers.Renounce()
	}
	return same
}

// isOf reports whether an engagement is of the same cluster as the one before. Where one identity is not known, their objects tell:
// whether the right to read it is given or taken says nothing of the cluster.
func (e *Engagement) isOf(before *Engagement) bool {
	switch {
	case before.identity == e.identity:
		return true
	case before.identity != "" && e.identity != "":
		return false
	default:
		return e.informers.Shares(&before.informers)
	}
}

// syncTimeout bounds the time for which an engagement waits for its caches while the one before goes on.
const syncTimeout = time.Minute

// syncBeside fills the caches of a new engagement with the kinds that the one before has, so that readers miss nothing
// when it takes its place. A kind that cannot be listed is not waited for.
func (e *Engagement) syncBeside(ctx context.Context, before *Engagement) {
	if before == nil || e.wire == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var syncing sync.WaitGroup
	for _, key := range before.informers.Keys() {
		syncing.Go(func() { _ = e.kinds.serve(ctx, key) })
	}
	syncing.Wait()
}
