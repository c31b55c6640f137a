package dependents

import (
	"errors"
	"slices"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// noteStuck notes which clusters are stuck, and when the next one may be. While one that has begun waits for something, it says itself if it is
// stuck, and those whose turn has not come are not.
func (a *accounting) noteStuck(results []Result) {
	deadline := a.plan.rollout.ProgressDeadline
	if deadline == 0 {
		return
	}
	queued, turned := a.o.queue()
	if turned.Before(a.plan.since) {
		turned = a.plan.since
	}
	begun := slices.ContainsFunc(results, func(r Result) bool { return !queued[r.Cluster] && r.waits() })
	for i, r := range results {
		since := r.Since
		if queued[r.Cluster] && since.Before(turned) {
			since = turned
		}
		left := deadline - time.Since(since)
		switch {
		case !r.waits() || queued[r.Cluster] && begun:
		case left <= 0:
			results[i].Stuck = true
		default:
			a.stuckIn = sooner(a.stuckIn, left)
		}
	}
}

// waits reports whether a cluster is stuck in the end if nothing of its result changes.
func (r Result) waits() bool {
	return isUnderway(r.Err) && !errors.Is(r.Err, ErrHalted) || unlessContended(r.Err) == nil && r.Unready != nil
}

// queue returns the clusters in which nothing is begun before others are done, and when it was last the turn of one.
func (o *ownerState) queue() (queued map[mcreconcile.ClusterName]bool, turned time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.progress == nil {
		return nil, time.Time{}
	}
	return o.progress.Queued(), o.turned
}
