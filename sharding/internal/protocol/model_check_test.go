package protocol

import (
	"flag"
	"slices"
	"strings"
	"testing"
)

var (
	modelRunning = flag.Int("model.replicas", modelReplicas, "how many replicas run in the model")
	modelFaults  = flag.Int("model.faults", 2, "how many faults may happen in the model; with three replicas, 3 take many gigabytes")
)

// Each of these mutants was let loose on the model, which notices: so it can fail.
func TestTheModelNoticesRulesThatAreWrong(t *testing.T) {
	const two, stuck = "two replicas may write", "nothing more happens"
	cases := map[string]struct {
		mutate func(*rules)
		want   string
		faults uint8 // 1 if it is 0.
	}{
		"a planner takes from whoever is silent, without a fence": {func(r *rules) {
			r.judge = func(_ string, _ bool, _ string, silent bool) Verdict {
				if silent {
					return Bury
				}
				return Wait
			}
		}, two, 0},
		"a planner fences what is not silent": {func(r *rules) {
			r.judge = func(session string, found bool, holder string, _ bool) Verdict {
				return Judge(session, found, holder, true)
			}
		}, two, 0},
		"a Lease that is gone is proof at once": {func(r *rules) {
			r.judge = func(session string, found bool, holder string, silent bool) Verdict {
				return Judge(session, found, holder, silent || Fenced(session, found, holder))
			}
		}, two, 0},
		"a planner takes from an owner": {func(r *rules) {
			r.plan = func(t *Table, in Input) (*Table, []Step) {
				planned, steps := Plan(t, in)
				for b, to := range planned.Moving {
					planned.give(b, to)
				}
				return planned, steps
			}
		}, two, 0},
		"an owner acknowledges before it has drained": {func(r *rules) {
			r.drains = false
		}, two, 0},
		"a view goes back": {func(r *rules) {
			r.newer = func(_, _ *Table) bool { return true }
		}, two, 0},
		"validity counts from the answer to a renewal": {func(r *rules) {
			r.countsFromSending = false
		}, two, 2},
		"a session that was lost goes on": {func(r *rules) {
			r.ends = false
		}, two, 0},
		"a write is applied although the table was written between": {func(r *rules) {
			r.swaps = false
		}, two, 0},
		"an owner works on what is moving away": {func(r *rules) {
			r.holds = func(t *Table, session string, b int) bool { return t.Owner[b] == session }
		}, two, 0},
		"the epoch is not raised": {func(r *rules) {
			r.acknowledge = func(t *Table, b int, by string) (string, error) {
				before := t.Epoch[b]
				to, err := t.Acknowledge(b, by)
				t.Epoch[b] = before
				return to, err
			}
		}, "another owner of the same epoch", 0},
		"nobody buries": {func(r *rules) {
			r.judge = func(session string, found bool, holder string, silent bool) Verdict {
				return min(Fence, Judge(session, found, holder, silent))
			}
		}, stuck, 0},
		"a session that leaves waits for a planner": {func(r *rules) {
			r.due = func(t *Table, session string, _ bool) []int { return t.Due(session, false) }
		}, stuck, 0},
		"plans flap": {func(r *rules) {
			r.plan = func(t *Table, in Input) (*Table, []Step) {
				planned, steps := Plan(t, in)
				if len(steps) == 0 && len(planned.Moving) == 0 && planned.Owner[0] != "" && len(in.Replicas) > 1 {
					to := slices.IndexFunc(in.Replicas, func(r Replica) bool { return r.Session != planned.Owner[0] && !r.Draining })
					if to >= 0 {
						planned.Moving[0] = in.Replicas[to].Session
					}
				}
				return planned, steps
			}
		}, "go on for ever", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &model{rules: realRules(), replicas: 2, faults: max(1, c.faults), weight: []int64{1, 1}}
			c.mutate(&m.rules)
			x, err := m.explore(1_000_000)
			if err == nil {
				err = x.settles()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the model says %v, want that %s", err, c.want)
			}
			t.Logf("after %d states: %v", len(x.states), err)
		})
	}
}

// Three replicas, two buckets, and any two faults, of: a replica is killed, is asked to end, or is paused beyond its Lease; a
// renewal or a write of the table is slow, and is applied after anything else; a planner is wrong about which sessions live; a
// stranger deletes a Lease. Answers are lost, views are late and replicas start again without being counted. That is
// 1,079,408 states. Two replicas and three faults are -model.replicas=2 -model.faults=3.
func TestNoTwoReplicasMayWriteToABucketAndAllSettlesAfterTheFaults(t *testing.T) {
	t.Parallel()
	m := &model{rules: realRules(), replicas: *modelRunning, faults: uint8(*modelFaults), weight: []int64{1, 1}}
	if testing.Short() {
		m.faults = min(m.faults, 1)
	}
	x, err := m.explore(60_000_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d tables", len(x.states), len(x.tables.all))
	if err := x.settles(); err != nil {
		t.Fatal(err)
	}
}

func TestNoTwoReplicasMayWriteToABucketWhateverIsPlanned(t *testing.T) {
	t.Parallel()
	m := &model{rules: realRules(), replicas: 2, faults: 1}
	m.rules.mad = true
	x, err := m.explore(60_000_000)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d tables", len(x.states), len(m.tables.all))
}
