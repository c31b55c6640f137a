package sweep

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// run sweeps until ctx is done, and returns when nothing runs any more. What caches have is looked at apart from the lists: these
// may have to wait for a long time, such as those of all members after the start.
func (s *Sweeper) run(ctx context.Context) {
	var both sync.WaitGroup
	defer both.Wait()
	if s.Watched != nil {
		both.Go(func() { s.rounds(ctx, s.byCaches()) })
	}
	s.rounds(ctx, s.byLists())
}

// way is how dependents are found: in a cluster's cache, or by its API server.
type way struct {
	// each calls do with the dependents of a kind. The answer is false if it is not the time for that.
	each func(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error)
	pass func(*sweepMemory) *pass
	// isDue reports whether there is something to sweep for, nil if there always is.
	isDue  func(*sweepMemory, []remote.Kind) bool
	awake  <-chan struct{} // receives when there are clusters to look at
	places *places
}

func (s *Sweeper) byCaches() way {
	return way{each: s.eachCached, pass: func(c *sweepMemory) *pass { return &c.cached }, awake: s.looks.awake(), places: newPlaces()}
}

func (s *Sweeper) byLists() way {
	return way{each: s.eachListed, pass: func(c *sweepMemory) *pass { return &c.listed }, isDue: s.isListDue, places: newPlaces()}
}

// gatherLooks is for how long it is gathered which clusters to look at. Owners often go by the hundred, and each asks for a look.
const gatherLooks = 500 * time.Millisecond

// rounds begins sweeps until ctx is done. Clusters are swept side by side, and one that is still being swept, or waits for that, is left
// out of the next round: a slow one does not hold up the others.
func (s *Sweeper) rounds(ctx context.Context, by way) {
	var sweeps sync.WaitGroup
	defer sweeps.Wait()
	waiting, open := s.round(by), make(chan struct{}, mostOpen)
	next := time.NewTimer(s.pause())
	defer next.Stop()
	var gathered <-chan time.Time // nil if there is nothing to look at
	soon := false                 // whether that is after what was asked for since
	for {
		var free chan<- struct{} // nil if nothing waits
		if len(waiting) > 0 {
			free = open
		}
		by.places.wanted.Store(len(waiting) > 0 && len(open) == mostOpen)
		select {
		case free <- struct{}{}:
			c := waiting[0]
			waiting = waiting[1:]
			sweeps.Go(func() {
				defer func() { <-open }()
				s.begin(ctx, by, c)
			})
		case <-next.C:
			waiting = append(waiting, s.round(by)...)
			next.Reset(s.pause())
		case <-by.awake:
			if !soon {
				gathered, soon = time.After(gatherLooks), true
			}
		case <-gathered:
			gathered, soon = nil, false
			now, later := s.toLookAt(by)
			waiting = append(waiting, now...)
			if later > 0 {
				gathered = time.After(later)
			}
		case <-ctx.Done():
			return
		}
	}
}

// pause returns how long it is until the next round.
func (s *Sweeper) pause() time.Duration {
	return s.Interval + rand.N(s.Interval/10+1) //nolint:gosec // it hides nothing
}

// begin sweeps a cluster that is busy with it.
func (s *Sweeper) begin(ctx context.Context, by way, c *sweepMemory) {
	s.sweep(ctx, c, by)
	by.pass(c).busy.Store(false)
	if by.awake != nil && c.again.Swap(false) {
		s.Look(c.name)
	}
}

// toLookAt returns the clusters to look at before the next round, as busy. One that is being swept is looked at afterwards. Those that
// were looked at a moment ago wait, and later is until the first of them is due, zero if there is none.
func (s *Sweeper) toLookAt(by way) (now []*sweepMemory, later time.Duration) {
	there := setOf(s.names())
	for name := range s.looks.take() {
		if !there[name] {
			continue
		}
		c := s.memory(name)
		if left := c.looks.left(); left > 0 {
			s.looks.putBack(name)
			if later == 0 || left < later {
				later = left
			}
			continue
		}
		c.again.Store(true) // before it is tried: its sweep may be about to end
		if by.pass(c).busy.CompareAndSwap(false, true) {
			c.again.Store(false)
			c.looks.looked()
			now = append(now, c)
		}
	}
	return now, later
}

// round returns the clusters to sweep now, as busy. It forgets those that are no more. One for which nothing is due does not wait among those
// that wait for the limit: it would have its turn after them all, also for what is due a moment later.
func (s *Sweeper) round(by way) []*sweepMemory {
	names := s.names()
	there := setOf(names)
	s.metrics.keep(there)
	s.mu.Lock()
	maps.DeleteFunc(s.clusters, func(name mcreconcile.ClusterName, c *sweepMemory) bool {
		return !there[name] && !c.cached.busy.Load() && !c.listed.busy.Load()
	})
	s.mu.Unlock()
	var now []*sweepMemory
	for _, name := range names {
		c := s.memory(name)
		switch {
		case !by.pass(c).busy.CompareAndSwap(false, true):
		case by.isDue != nil && !by.isDue(c, s.kindsToList(c)):
			by.pass(c).busy.Store(false)
		default:
			now = append(now, c)
		}
	}
	return now
}

func setOf(names []mcreconcile.ClusterName) map[mcreconcile.ClusterName]bool {
	set := make(map[mcreconcile.ClusterName]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
