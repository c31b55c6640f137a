package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var (
	memorySizes          = newSizes("memory-members", "numbers of members in the memory table", 100, 300, 1000)
	fleetSize            = flag.Int("members", 300, "members in the tables engage and idle")
	churnCycles          = flag.Int("churn-cycles", 200, "cycles of engaging and disengaging a member in the churn table")
	churnSettle          = flag.Duration("churn-settle", 100*time.Second, "how long left-overs may take to go; connections that were left idle are closed after 90s")
	freezeFleet          = newSizes("freeze-members", "members in the freeze table that go on, and that freeze", 200, 100)
	badLimit             = flag.Duration("bad-limit", 20*time.Second, "how long healthy members may take beside bad ones")
	oneObjects           = flag.Int("overhead-objects", 2000, "objects in the overhead table")
	oneRuns              = flag.Int("overhead-runs", 3, "runs in the overhead table, whose medians count; 15 take some six minutes")
	idleDuration         = flag.Duration("idle-for", 2*time.Minute, "how long the idle table measures, in which Go collects garbage once at least; its figures are for a minute")
	oursAlone            = flag.Bool("ours-alone", false, "leave the peers out, to see quickly what a change brings")
	profiles             = flag.String("profiles", "", "a folder to which heap and goroutine profiles are written, execution traces of the latencies in the overhead table, and CPU profiles of idleness in the dependents table")
	outageSizes          = newSizes("outage-members", "numbers of members in the outage table, such as 300,1000,3000", 300)
	dependentsTargets    = flag.Int("dependents-targets", 300, "members in the dependents table, 0 to leave these out")
	sweepMembers         = flag.Int("sweep-members", 1000, "members of the provider of namespaces in the sweep table")
	dependentsNamespaces = flag.Int("dependents-namespaces", 1000, "members of the provider of namespaces in the dependents table, 0 to leave these out")
	replicatorMembers    = flag.Int("replicator-members", 300, "members in the replicator table")
	replicatorReplicas   = flag.Int("replicator-replicas", 1, "processes in the replicator table that share the members")
	tracesRounds         = flag.Int("traces-rounds", 3000, "reconciles in the traces table, of each kind")
	shardingHub          = newSizes("sharding-hub-members", "numbers of members in the table of hub requests, empty to leave it out", 10, 100, 1000, 5000)
	shardingHubFor       = flag.Duration("sharding-hub-for", 30*time.Second, "how long requests to the hub are counted; the peer's come every ten seconds")
	shardingMembers      = flag.Int("sharding-members", 1000, "members in the tables of what replicas cost, and of moves, 0 to leave these out")
	shardingReplicas     = newSizes("sharding-replicas", "numbers of replicas in the table of what they cost; the first is what the others are compared with", 1, 3, 5)
	shardingFor          = flag.Duration("sharding-for", 20*time.Second, "how long CPU time is measured of replicas that are idle, and that are not")
	shardingThroughput   = newSizes("sharding-throughput", "numbers of replicas in the table of throughput, empty to leave it out", 1, 2, 4)
	outageDuration       = flag.Duration("outage-for", time.Minute, "how long the outage table measures what members cost that are down")
)

// sizes is a flag of numbers with commas between them.
type sizes struct{ all []int }

func newSizes(name, usage string, all ...int) *sizes {
	s := &sizes{all}
	flag.Var(s, name, usage)
	return s
}

func (s *sizes) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(s.all), " ", ","), "[]")
}

func (s *sizes) Set(text string) error {
	s.all = nil
	if text == "" {
		return nil
	}
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		s.all = append(s.all, n)
	}
	return nil
}
