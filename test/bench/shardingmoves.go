package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// replicasOfMoves is how many share the members before one joins, leaves or dies.
const replicasOfMoves = 3

// What may be at most.
const (
	longestTakeover = 17 * time.Second // after a death: the lease and two seconds
	longestHandOver = time.Second      // after the drain, which takes no time where nothing runs
)

// replicaChange is what happens to replicas.
type replicaChange struct {
	name  string
	do    func(ctx context.Context, r *replicas) error
	gone  int           // which replica is gone then, -1 for none
	takes time.Duration // at most; zero if there is no goal
}

var replicaChanges = []replicaChange{
	{"one joins", func(ctx context.Context, r *replicas) error { return r.start(ctx) }, -1, 0},
	{"one leaves (SIGTERM)", func(_ context.Context, r *replicas) error { return r.leave(1) }, 1, longestHandOver},
	{"the one that plans dies (SIGKILL)", func(_ context.Context, r *replicas) error { return r.kill(0) }, 0, longestTakeover},
}

// moved is what came of a change.
type moved struct {
	limit          int             // of moves
	after          []time.Duration // of each move, in order
	before, shares []int           // members of each replica
}

// movesTable answers: when a replica comes or goes, how many members move, and how long is it until each was reconciled by its next
// owner?
func (w *world) movesTable(ctx context.Context) (err error) {
	r, shares, err := w.share(ctx, measure.Spec{}, replicasOfMoves, *shardingMembers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	t := table{
		title: fmt.Sprintf("Sharding: moves of %d members, each until it was reconciled by its next owner", *shardingMembers),
		header: []string{
			"", columnReplicas, "moves", "at most", "moves to that", "first after", columnMedian, columnLast, "last at most", "last to that",
			membersToMean,
		},
	}
	for _, c := range replicaChanges {
		progressf("of %d replicas, %s", len(shares), c.name)
		m, err := r.change(ctx, c, shares)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		t.add(m.row(c)...)
		shares = m.shares
	}
	t.print()
	return nil
}

// change changes the replicas, which have so many members each, and waits until all members have an owner again.
func (r *replicas) change(ctx context.Context, c replicaChange, before []int) (moved, error) {
	m := moved{limit: *shardingMembers / (len(before) + 1), before: before} // its share, of a replica that joins
	if c.gone >= 0 {
		m.limit = before[c.gone]
	}
	if _, err := r.ask(measure.Request{Do: measure.Reset}); err != nil {
		return m, err
	}
	began := time.Now()
	err := c.do(ctx, r)
	if err != nil {
		return m, err
	}
	if m.shares, err = r.calm(ctx, *shardingMembers); err != nil {
		return m, err
	}
	seen, err := r.seen()
	if err == nil && len(seen) == 0 {
		err = errors.New("no member has moved")
	}
	for _, at := range seen {
		m.after = append(m.after, time.Unix(0, at).Sub(began))
	}
	return m, err
}

func (m *moved) row(c replicaChange) []string {
	moves := len(m.after)
	last := m.after[moves-1]
	atMost, toThat := "–", "–"
	if c.takes > 0 {
		atMost, toThat = seconds(c.takes), ratio(last.Seconds(), c.takes.Seconds())
	}
	return []string{
		c.name, fmt.Sprintf("%d → %d", len(m.before), len(m.shares)), fmt.Sprint(moves), fmt.Sprint(m.limit), ratio(float64(moves), float64(m.limit)),
		seconds(m.after[0]), seconds(m.after[moves/2]), seconds(last), atMost, toThat, spreadOf(m.shares),
	}
}
