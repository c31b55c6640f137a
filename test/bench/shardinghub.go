package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

const (
	hubReplicas = 3

	membersToMean = "members of a replica to the mean: least, most"
)

// shared is what came of members that replicas share.
type shared struct {
	subject string
	members int
	shares  []int // how many members each replica has
	load    hubLoad
	steady  bool // nothing has changed while the load was measured
}

// hubTable answers: what do replicas ask of the hub once they share their members, by how many members there are? The members are there
// in name alone, for both: nobody connects them.
func (w *world) hubTable(ctx context.Context) error {
	subjects := []string{subjectNames, subjectPeerNames}
	if *oursAlone {
		subjects = subjects[:1]
	}
	var all []shared
	for _, members := range shardingHub.all {
		for _, subject := range subjects {
			s := shared{subject: subject, members: members}
			if err := w.measureHub(ctx, &s); err != nil {
				return err
			}
			all = append(all, s)
		}
	}
	printHub(all, len(subjects))
	return nil
}

// measureHub measures replicas in the steady state, or after a while if they find none.
func (w *world) measureHub(ctx context.Context, s *shared) (err error) {
	r, err := w.startReplicas(ctx, measure.Spec{Subject: s.subject, Members: s.members}, hubReplicas, s.members)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if s.shares, err = r.calm(ctx, s.members); err != nil && !errors.Is(err, errNotCalm) {
		return err
	}
	s.steady = err == nil
	if s.load, err = r.hubLoad(ctx, *shardingHubFor); err != nil {
		return err
	}
	now, known, err := r.look()
	s.steady = s.steady && known && slices.Equal(now, s.shares)
	return err
}

// printHub prints what was measured of so many subjects by turns, of which ours is the first.
func printHub(all []shared, subjects int) {
	t := table{
		title: fmt.Sprintf("Sharding: requests to the hub of %d replicas in the steady state (counted for %s)", hubReplicas, *shardingHubFor),
		header: []string{
			columnMembers, "", "writes of Leases", "reads of Leases", "watches of Leases", "their events", "all requests", "writes to ours",
			"all to ours", "writes to its fewest members", "steady", membersToMean,
		},
	}
	for i, s := range all {
		ours, fewest := all[i-i%subjects].load, all[i%subjects].load
		t.add(fmt.Sprint(s.members), s.subject, rate(s.load.writes), rate(s.load.reads), fmt.Sprintf("%.0f", s.load.watches), rate(s.load.events),
			rate(s.load.all), ratio(s.load.writes, ours.writes), ratio(s.load.all, ours.all), ratio(s.load.writes, fewest.writes), yesOrNo(s.steady), spreadOf(s.shares))
	}
	t.print()
}

func yesOrNo(is bool) string { return map[bool]string{true: "yes", false: "no"}[is] }

func rate(perSecond float64) string { return fmt.Sprintf("%.2f/s", perSecond) }
