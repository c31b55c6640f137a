package sweep

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// Whoever may write an object writes references to as many owners as it has room for, and each takes a request by which nothing is proved.
// So a look at a dependent asks for a few of its owners, and a sweep that takes long lets others have its place between two looks.

const (
	// mostAsked is how many owners of a dependent a look asks for. With the next look it is the turn of others.
	mostAsked = 4
	// mostOpen is how many clusters are swept side by side, with those that have let others have their place. Each holds a page of a list.
	mostOpen = 4 * remote.AtOnce
	// mostTurns is how often a kind may take as long as a round before it is the turn of the cluster's others. A sweep that goes on asks for
	// an owner once, however many dependents it has.
	mostTurns = 4
)

// errLong ends the sweep of a kind that has taken long while others waited.
var errLong = errors.New("it has taken long, and others wait: the next sweep begins with the next kind, and goes on with what is left of others")

// places are those of sweeps that work at once.
type places struct {
	free   chan struct{}
	wanted atomic.Bool // clusters wait that cannot be begun with
}

func newPlaces() *places { return &places{free: make(chan struct{}, remote.AtOnce)} }

// turn is what a sweep has of what all of them share.
type turn struct {
	places *places
	placed bool                // it has one
	gave   int                 // how often it has let others have that, since the first dependent of the kind that was looked at
	others func() bool         // reports whether other kinds of the cluster wait
	began  time.Time           // since when it has the place
	skips  bool                // a list goes on, and is not there yet
	asked  int                 // how many owners were asked for, of the dependent that is looked at
	unsure map[ownerHash]error // owners, whatever has them, of which it could not be told whether they are gone: some
}

// Bounds of what a sweep remembers of owners of which it could not tell: less than a megabyte. References may say anything, however long, and
// what a server answers may quote them.
const (
	mostUnsure    = 2000 // others are asked for again
	longestReason = 200  // in bytes
)

// ownerHash stands for an owner as a reference has it, with the cluster that is meant. An ownerKey is one that is there.
type ownerHash [sha256.Size]byte

func hashOf(owner mcowner.Reference) ownerHash {
	return sha256.Sum256(fmt.Appendf(nil, "%q", []string{owner.Key(), string(owner.UID), string(owner.ClusterUID)}))
}

// whyUnsure returns why it could not be told whether an owner is gone when it was asked for, nil if it was not, or is not remembered.
func (t *turn) whyUnsure(owner mcowner.Reference) error { return t.unsure[hashOf(owner)] }

// noteUnsure remembers that it could not be told whether an owner is gone, and the beginning of why.
func (t *turn) noteUnsure(owner mcowner.Reference, why error) {
	if len(t.unsure) >= mostUnsure {
		return
	}
	is := errUnproven
	if errors.Is(why, errAnotherCluster) {
		is = errAnotherCluster
	}
	t.unsure[hashOf(owner)] = fmt.Errorf("%w, as was found before: %s", is, oneline.Text(why.Error(), longestReason))
}

// begin waits for a place.
func (t *turn) begin(ctx context.Context) error {
	select {
	case t.places.free <- struct{}{}:
		t.placed, t.began = true, time.Now()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end gives the place away, if there is one.
func (t *turn) end() {
	if t.placed {
		t.placed = false
		<-t.places.free
	}
}

// isWanted reports whether the sweep ends here, for other clusters to begin.
func (t *turn) isWanted() bool { return t.gave > 0 && t.places.wanted.Load() }

// isOver reports whether the kind ends here, for others to begin.
func (t *turn) isOver() bool { return t.isWanted() || t.gave >= mostTurns && t.others() }

// giveWay lets other sweeps have their turn if this one has taken as long as a round, by waiting for the limit, or for answers.
func (s *Sweeper) giveWay(ctx context.Context, of *turn) error {
	if time.Since(of.began) < s.Interval {
		return nil
	}
	if !of.skips {
		of.gave++
	}
	of.end()
	return of.begin(ctx)
}

// next is giveWay before a dependent is looked at. The first one after those that were looked at before has a whole turn: else a list that is long,
// or slow, might get no further.
func (s *Sweeper) next(ctx context.Context, of *turn) error {
	if !of.skips {
		return s.giveWay(ctx, of)
	}
	of.skips = false
	of.end()
	return of.begin(ctx)
}

// inTurn returns the owners of a dependent as a look asks for them. Of many, it may be the turn of any.
func inTurn(owners []mcowner.Reference) []mcowner.Reference {
	if len(owners) <= mostAsked {
		return owners
	}
	first := rand.N(len(owners)) //nolint:gosec // it hides nothing
	return slices.Concat(owners[first:], owners[:first])
}
