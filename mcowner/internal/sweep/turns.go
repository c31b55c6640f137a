package sweep

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Whoever may write an object writes references to as many owners as it has room for, and each takes a request by which nothing is proved.
// So a look at a dependent asks for a few of its owners, a sweep waits for the limit no longer than its share, and the sweeps of all clusters
// take turns at the limit.

// mostAsked is how many owners of a dependent a look asks for. With the next look it is the turn of others.
const mostAsked = 4

// errTurn ends a sweep that has waited for the limit as long as a round takes.
var errTurn = errors.New("owners were asked for, or orphans removed, for as long as a round takes; the next sweep goes on with other dependents. " +
	"If that goes on, somebody may have written references to owners that are not there")

// turn is what a sweep has had of what all of them share.
type turn struct {
	places places                      // of which the sweep has one, but while it waits for the limit
	waited time.Duration               // for the limit
	asked  int                         // how often the limit was waited for, for the dependent that is looked at
	costly map[types.UID]tally         // dependents of the kind that is looked at for which it was, and what was seen of them
	unsure map[mcowner.Reference]error // owners, whatever has them, of which it could not be told whether they are gone
}

// places are room for sweeps that work at once.
type places chan struct{}

func newPlaces() places { return make(places, remote.AtOnce) }

func (p places) enter(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p places) leave() { <-p }

// wait waits until the limit allows a request for a single dependent. Another sweep has the place meanwhile: there may be dependents to ask
// for in every cluster.
func (s *Sweeper) wait(ctx context.Context, had *turn) error {
	began := time.Now()
	had.places.leave()
	err := s.await(ctx, s.asking)
	had.asked++
	had.waited += time.Since(began)
	had.places <- struct{}{} // sweeps that have one end with ctx, too
	return err
}

// beforeList waits until a list may be asked for.
func (s *Sweeper) beforeList(ctx context.Context) error { return s.await(ctx, s.listing) }

// await waits until the limit allows a request. At each gate one at a time waits for that, so that however many lists are due, what is to be
// asked for a dependent waits behind one of them, and the other way round.
func (s *Sweeper) await(ctx context.Context, gate chan struct{}) error {
	select {
	case gate <- struct{}{}:
		defer func() { <-gate }()
		return s.limit.Wait(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inTurn returns the owners of a dependent as a look asks for them. Of many, it may be the turn of any.
func inTurn(owners []mcowner.Reference) []mcowner.Reference {
	if len(owners) <= mostAsked {
		return owners
	}
	first := rand.N(len(owners)) //nolint:gosec // it hides nothing
	return slices.Concat(owners[first:], owners[:first])
}

// eachInTurn calls look with a dependent, unless that had its turn in a sweep that ended before the end of the kind. What was seen then
// counts.
func (f *findings) eachInTurn(kind schema.GroupVersionKind, obj client.Object, look func()) {
	sum := f.tally
	seen, had := f.had[kind][obj.GetUID()]
	if !had {
		f.tally, f.asked = newTally(), 0
		look()
		seen = f.tally
	}
	if f.asked > 0 && !had {
		f.costly[obj.GetUID()] = seen
	}
	sum.add(seen)
	f.tally = sum
}

// noteTurn notes what has had its turn, if that is why the look at a kind has ended, and otherwise that all may have it again.
func (p *pass) noteTurn(kind schema.GroupVersionKind, costly map[types.UID]tally, err error) {
	if !errors.Is(err, errTurn) {
		delete(p.had, kind)
		return
	}
	if p.had == nil {
		p.had = map[schema.GroupVersionKind]map[types.UID]tally{}
	}
	if p.had[kind] == nil {
		p.had[kind] = map[types.UID]tally{}
	}
	maps.Copy(p.had[kind], costly)
}

func newTally() tally { return tally{strange: map[mcreconcile.ClusterName]int{}} }

func (t *tally) add(other tally) {
	t.unproven += other.unproven
	t.unidentified += other.unidentified
	for owners, n := range other.strange {
		t.strange[owners] += n
	}
}
