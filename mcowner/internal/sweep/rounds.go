package sweep

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
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
		both.Go(func() {
			s.rounds(ctx, way{s.eachCached, func(c *sweepMemory) *pass { return &c.cached }, s.looks.awake(), newPlaces()})
		})
	}
	s.rounds(ctx, way{s.eachListed, func(c *sweepMemory) *pass { return &c.listed }, nil, newPlaces()})
}

// way is how dependents are found: in a cluster's cache, or by its API server.
type way struct {
	// each calls do with the dependents of a kind. The answer is false if it is not the time for that.
	each   func(ctx context.Context, at remote.Session, k remote.Kind, c *sweepMemory, do func(client.Object) error) (did bool, err error)
	pass   func(*sweepMemory) *pass
	awake  <-chan struct{} // receives when there are clusters to look at
	places places
}

// gatherLooks is for how long it is gathered which clusters to look at. Owners often go by the hundred, and each asks for a look.
const gatherLooks = 500 * time.Millisecond

// rounds begins sweeps until ctx is done. Clusters are swept side by side, and one that is still being swept is left out of the
// next round: a slow one does not hold up the others.
func (s *Sweeper) rounds(ctx context.Context, by way) {
	var group errgroup.Group
	defer func() { _ = group.Wait() }() // it has no errors
	group.SetLimit(mostOpen)
	var gathered <-chan time.Time // nil if there is nothing to look at
	soon := false                 // whether that is after what was asked for since
	for ctx.Err() == nil {
		s.begin(ctx, &group, by, s.round(by))
		timer := time.NewTimer(s.Interval + rand.N(s.Interval/10+1)) //nolint:gosec // it hides nothing
		for waiting := true; waiting; {
			select {
			case <-timer.C:
				waiting = false
			case <-by.awake:
				if !soon {
					gathered, soon = time.After(gatherLooks), true
				}
			case <-gathered:
				gathered, soon = nil, false
				now, later := s.toLookAt(by)
				s.begin(ctx, &group, by, now)
				if later > 0 {
					gathered = time.After(later)
				}
			case <-ctx.Done():
				waiting = false
			}
		}
		timer.Stop()
	}
}

// begin sweeps clusters that are busy with it.
func (s *Sweeper) begin(ctx context.Context, group *errgroup.Group, by way, now []*sweepMemory) {
	for _, c := range now {
		group.Go(func() error {
			s.sweep(ctx, c, by)
			by.pass(c).busy.Store(false)
			if by.awake != nil && c.again.Swap(false) {
				s.Look(c.name)
			}
			return nil
		})
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

// round returns the clusters to sweep now, as busy. It forgets those that are no more.
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
		if c := s.memory(name); by.pass(c).busy.CompareAndSwap(false, true) {
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
