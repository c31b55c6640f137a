package sweep

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// sweepMemory is what is known of a cluster from one sweep to the next.
type sweepMemory struct {
	name           mcreconcile.ClusterName
	again          atomic.Bool // it is to be looked at once it is not busy any more
	looks          lookPace    // of looks before its time, by the goroutine that begins them
	cached, listed pass
	// due is when the dependents of a kind are listed next, not before, as long as it is the engagement in which they were listed
	// last: what was left in a member may be there again when it is back. The pass that lists has both.
	due      map[schema.GroupVersionKind]time.Time
	listedIn *fleet.Engagement

	mu      sync.Mutex // guards what follows
	tallies map[schema.GroupVersionKind]tally
	strange map[mcreconcile.ClusterName]int // as it was told last, see tally
}

// pass is one of the ways in which a cluster is swept.
type pass struct {
	busy atomic.Bool // it is on, in the goroutine that has what follows
	// hung has dependents whose removal got no answer in time. They are left out until a look at their kind has reached the end, so
	// that the others have their turn.
	hung map[schema.GroupVersionKind]map[types.UID]bool
	// last is the kind that was looked at last. The next sweep begins after it, also if this one ended early.
	last schema.GroupVersionKind
	// lastInTurn is the last of those of which not every sweep looks at all, see Options.MoreKinds.
	lastInTurn schema.GroupVersionKind
	// begun has kinds that took too long: the next list is looked at from a dependent on, as lists are in order. Caches are not.
	begun map[schema.GroupVersionKind]begun
	// emptying has namespaces in which something had not gone yet, or that could not be removed.
	emptying map[types.UID]emptying
}

// emptying is since when a namespace has been seen to be so, and until when it is left out: a look into it takes a request for each kind.
type emptying struct{ since, until time.Time }

const (
	mostBetweenEmptying = 10 * time.Minute // the longest pause between looks into a namespace that hangs
	forgetEmptying      = time.Hour        // one that was not looked into for longer is no more
	mostWaitedFor       = time.Hour        // of what has to go first: nobody may look for a kind that was noted on an owner that is gone
)

// noteEmptying leaves a namespace out for as long as it has been so: most hang for no longer than what is in them takes to stop.
func (p *pass) noteEmptying(namespace types.UID) {
	now := time.Now()
	maps.DeleteFunc(p.emptying, func(_ types.UID, e emptying) bool { return now.Sub(e.until) > forgetEmptying })
	if p.emptying == nil {
		p.emptying = map[types.UID]emptying{}
	}
	e, known := p.emptying[namespace]
	if !known {
		e.since = now
	}
	e.until = now.Add(min(now.Sub(e.since), mostBetweenEmptying))
	p.emptying[namespace] = e
}

// waitsForOrphans reports whether a namespace still waits for what its owners that are gone have in it. After that it is taken for one of others.
func (p *pass) waitsForOrphans(namespace types.UID) bool {
	e, known := p.emptying[namespace]
	return !known || time.Since(e.since) < mostWaitedFor
}

// isLeftOut reports whether a dependent has its turn later than with this sweep.
func (p *pass) isLeftOut(kind schema.GroupVersionKind, dependent types.UID) bool {
	return p.hung[kind][dependent] || time.Now().Before(p.emptying[dependent].until)
}

func (p *pass) noteHung(kind schema.GroupVersionKind, dependent types.UID) {
	if p.hung == nil {
		p.hung = map[schema.GroupVersionKind]map[types.UID]bool{}
	}
	if p.hung[kind] == nil {
		p.hung[kind] = map[types.UID]bool{}
	}
	p.hung[kind][dependent] = true
}

// place is where an object is in a list of its kind: API servers list by it.
func place(namespace, name string) string { return namespace + "/" + name }

// begun is where the next list is looked at, when the first one began, and what was seen since then.
type begun struct {
	at    string
	since time.Time
	tally
}

// isNew reports whether an object has come since the first of the lists that go on: where objects come all the while, lists would go on without end,
// and none would begin anew.
func (b begun) isNew(obj client.Object) bool {
	return b.at != "" && obj.GetCreationTimestamp().After(b.since)
}

// goOn has the next list of a kind looked at from a dependent on.
func (f *findings) goOn(kind schema.GroupVersionKind, at string, since time.Time) {
	if f.cached {
		return
	}
	if f.begun == nil {
		f.begun = map[schema.GroupVersionKind]begun{}
	}
	f.begun[kind] = begun{at, since, f.tally}
}

// inTurn returns kinds in the order in which they are looked at: others come after the last of those that each sweep has.
func (p *pass) inTurn(always, others []remote.Kind) []remote.Kind {
	next := 1 + indexOf(always, p.last)
	return slices.Concat(always[next:], others, always[:next])
}

func indexOf(kinds []remote.Kind, gvk schema.GroupVersionKind) int {
	return slices.IndexFunc(kinds, func(k remote.Kind) bool { return k.GroupVersionKind == gvk })
}

// tally is what was seen when a kind was last looked at.
type tally struct {
	unproven, unidentified int
	// strange is how many dependents have owners in another cluster than the one that has its name now, by that name.
	strange map[mcreconcile.ClusterName]int
}

// memory returns what is known of a cluster.
func (s *Sweeper) memory(name mcreconcile.ClusterName) *sweepMemory {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.clusters[name]
	if !ok {
		c = &sweepMemory{name: name, due: map[schema.GroupVersionKind]time.Time{}, tallies: map[schema.GroupVersionKind]tally{}}
		s.clusters[name] = c
	}
	return c
}

// note notes what was seen of a kind.
func (c *sweepMemory) note(kind schema.GroupVersionKind, seen tally) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tallies[kind] = seen
}

// keep forgets what was seen of other kinds than these: they are not swept any more.
func (c *sweepMemory) keep(kinds []remote.Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.tallies, func(kind schema.GroupVersionKind, _ tally) bool {
		return indexOf(kinds, kind) < 0
	})
}

// isDue reports whether a kind is to be listed now. It is for the pass that lists.
func (c *sweepMemory) isDue(k remote.Kind) bool { return !time.Now().Before(c.due[k.GroupVersionKind]) }

// mayHaveTurn returns those of others that are listed now: as many between two lists of a kind as one owner can note. Whoever may edit owners may
// make up any number. It is for the pass that lists.
func (c *sweepMemory) mayHaveTurn(always, others []remote.Kind) []remote.Kind {
	left := record.MostKinds
	for kind, due := range c.due {
		if time.Now().Before(due) && indexOf(always, kind) < 0 {
			left--
		}
	}
	now := slices.DeleteFunc(slices.Clone(others), func(k remote.Kind) bool { return !c.isDue(k) })
	return now[:max(0, min(left, len(now)))]
}

// forgetDue forgets of which kinds a list is due in an engagement. It is for the pass that lists.
func (c *sweepMemory) forgetDue(in *fleet.Engagement) {
	if c.listedIn != in {
		c.listedIn = in
		clear(c.due)
	}
	now := time.Now()
	maps.DeleteFunc(c.due, func(_ schema.GroupVersionKind, due time.Time) bool { return !now.Before(due) })
}

// tell shows what a sweep came to. How many dependents have owners in another cluster than the one that has its name is logged
// if that is news.
func (s *Sweeper) tell(c *sweepMemory, err error) {
	all := tally{strange: map[mcreconcile.ClusterName]int{}}
	c.mu.Lock()
	for _, of := range c.tallies {
		all.unproven += of.unproven
		all.unidentified += of.unidentified
		for owners, n := range of.strange {
			all.strange[owners] += n
		}
	}
	before := c.strange
	c.strange = all.strange
	c.mu.Unlock()
	s.metrics.swept(c.name, all.unproven, all.unidentified, err)
	for owners, n := range all.strange {
		if before[owners] != n {
			s.log.Info("Left dependents alone: another cluster has the name of their owners'. If two installations have the same name, "+
				"give one another; if the cluster's credentials lead to the wrong one, mend them",
				"cluster", c.name, "ownersIn", remote.ClusterText(owners), "dependents", n)
		}
	}
}
