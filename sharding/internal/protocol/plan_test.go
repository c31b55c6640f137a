package protocol

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// share is a table with its replicas, of which each does at once what is planned.
type share struct {
	testing.TB
	table  *Table
	in     Input
	joined int
	moves  []int // How often each bucket has moved.
	moved  int64 // The weight of all moves.
}

func shared(tb testing.TB, weight []int64) *share {
	tb.Helper()
	return &share{TB: tb, table: New(len(weight), 1), in: Input{Weight: weight}, moves: make([]int, len(weight))}
}

// join starts replicas of a revision.
func (s *share) join(replicas int, revision string, capacity ...int) {
	s.Helper()
	for i := range replicas {
		name := fmt.Sprintf("r%d", s.joined)
		s.joined++
		m := Member{Session: name, Revision: revision}
		if len(capacity) > 0 {
			m.Capacity = capacity[i%len(capacity)]
		}
		must(s, s.table.Join(m))
		s.in.Replicas = append(s.in.Replicas, Replica{Session: name})
	}
}

// settle plans and moves until nothing is left to do.
func (s *share) settle() {
	s.Helper()
	for plans := 0; s.step(); plans++ {
		if plans > 400 {
			s.Fatal("plan after plan comes to no end")
		}
	}
}

// step makes one plan, and then all moves of the table.
func (s *share) step() bool {
	s.Helper()
	planned, steps := Plan(s.table, s.in)
	s.table = planned
	done := len(steps) > 0 || len(planned.Moving) > 0
	s.acknowledge()
	return done
}

func (s *share) acknowledge() {
	s.Helper()
	for b := range s.table.Owner {
		if _, moving := s.table.Moving[b]; moving {
			if _, err := s.table.Acknowledge(b, s.table.Owner[b]); err != nil {
				s.Fatal(err)
			}
			s.moves[b]++
			s.moved += s.in.Weight[b]
		}
	}
}

// drain ends a replica, which hands over first.
func (s *share) drain(i int) {
	s.Helper()
	name := s.in.Replicas[i].Session
	s.in.Replicas[i].Draining = true
	s.step()
	for _, b := range s.table.Due(name, true) { // No plan came for these: nobody else takes anything.
		if _, err := s.table.Acknowledge(b, name); err != nil {
			s.Fatal(err)
		}
	}
	must(s, s.table.Leave(name))
	s.in.Replicas = slices.Delete(s.in.Replicas, i, i+1)
}

// kill ends a replica, which is buried.
func (s *share) kill(i int) {
	s.Helper()
	must(s, s.table.Bury(s.in.Replicas[i].Session))
	s.in.Replicas = slices.Delete(s.in.Replicas, i, i+1)
}

// loads are those of the live replicas per capacity, with the empty buckets that each has.
func (s *share) loads() (load map[string]float64, empty map[string]int) {
	load, empty = map[string]float64{}, map[string]int{}
	capacity := map[string]float64{}
	for _, m := range s.table.Sessions {
		capacity[m.Session] = float64(max(1, m.Capacity))
		load[m.Session], empty[m.Session] = 0, 0
	}
	for b, owner := range s.table.Owner {
		if s.in.Weight[b] == 0 {
			empty[owner]++
		}
		load[owner] += float64(s.in.Weight[b]) / capacity[owner]
	}
	return load, empty
}

func (s *share) capacity() (sum, least float64) {
	least = math.Inf(1)
	for _, m := range s.table.Sessions {
		sum += float64(max(1, m.Capacity))
		least = min(least, float64(max(1, m.Capacity)))
	}
	return sum, least
}

// checkOwned checks that a live replica owns each bucket.
func (s *share) checkOwned() {
	s.Helper()
	for b, owner := range s.table.Owner {
		if !slices.ContainsFunc(s.in.Replicas, func(r Replica) bool { return r.Session == owner }) {
			s.Fatalf("bucket %d belongs to %q, which does not live", b, owner)
		}
	}
}

// checkBalance checks that each load is within 0.9 and 1.1 of the mean, or within the heaviest bucket of it, if that is more.
func (s *share) checkBalance() {
	s.Helper()
	s.checkOwned()
	load, _ := s.loads()
	sum, least := s.capacity()
	mean := float64(total(s.in.Weight)) / sum
	off := max(0.1*mean, float64(slices.Max(s.in.Weight))/least)
	for name, l := range load {
		if l > mean+off || l < mean-off {
			s.Errorf("the load of %s is %.1f, with a mean of %.1f and the heaviest bucket %d", name, l, mean, slices.Max(s.in.Weight))
		}
	}
}

func total(weight []int64) (sum int64) {
	for _, w := range weight {
		sum += w
	}
	return sum
}

// random returns the weights of members in random buckets.
func random(r *rand.Rand, buckets, members, heaviest int) []int64 {
	weight := make([]int64, buckets)
	for range members {
		weight[r.IntN(buckets)] += 1 + r.Int64N(int64(heaviest))
	}
	return weight
}

// seeds are those of the random inputs of a test.
func seeds(yield func(string, *rand.Rand) bool) {
	for seed := range uint64(12) {
		if !yield(fmt.Sprint("seed ", seed), rand.New(rand.NewPCG(seed, 15))) {
			return
		}
	}
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func TestLoadsAreBalancedByWeight(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			for range 4 {
				s := shared(t, random(r, 1024, one(r, 10, 100, 1000, 10000), one(r, 1, 10)))
				s.join(one(r, 1, 2, 3, 10, 50), "r1")
				s.settle()
				s.checkBalance()
			}
		})
	}
}

func TestLoadsAreBalancedByCapacity(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 1024, 10000, 10))
			s.join(one(r, 2, 3, 10), "r1", 1, 4, 2)
			s.settle()
			s.checkBalance()
		})
	}
}

func TestAReplicaThatJoinsGetsItsShareAndNoMoreMoves(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 1024, one(r, 1000, 10000), one(r, 1, 10)))
			replicas := one(r, 1, 3, 10, 49)
			s.join(replicas, "r1")
			s.settle()
			s.moved = 0
			s.join(1, "r1")
			s.settle()
			s.checkBalance()
			if most := total(s.in.Weight)/int64(replicas+1) + slices.Max(s.in.Weight); s.moved > most {
				t.Errorf("%d of %d moved when one joined %d, want at most %d", s.moved, total(s.in.Weight), replicas, most)
			}
			if slices.Max(s.moves) > 1 {
				t.Error("a bucket moved more than once")
			}
		})
	}
}

func TestWhatIsSettledIsLeftAlone(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 512, one(r, 0, 10, 1000), 10))
			s.join(one(r, 1, 3, 20), "r1", 1, 2)
			s.settle()
			planned, steps := Plan(s.table, s.in)
			if diff := cmp.Diff(s.table, planned); len(steps) > 0 || diff != "" {
				t.Errorf("an unchanged input led to %v (-before, +after):\n%s", steps, diff)
			}
		})
	}
}

func TestAPlanIsTheSameForAll(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 512, 1000, 10))
			s.join(5, "r1")
			s.step()
			s.kill(2)
			s.join(3, "r1")
			one, steps := Plan(s.table, s.in)
			r.Shuffle(len(s.in.Replicas), func(i, j int) { s.in.Replicas[i], s.in.Replicas[j] = s.in.Replicas[j], s.in.Replicas[i] })
			other, others := Plan(s.table, s.in)
			if diff := cmp.Diff(one, other) + cmp.Diff(steps, others); diff != "" {
				t.Errorf("the order of replicas matters:\n%s", diff)
			}
		})
	}
}

func TestPlansComeToAnEndWhateverHappened(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 256, 500, 20))
			s.join(4, "r1")
			for n := range 60 {
				switch r.IntN(6) {
				case 0:
					s.join(1+r.IntN(3), one(r, "r1", fmt.Sprint("r", n)), 1, 3)
				case 1:
					if len(s.in.Replicas) > 1 {
						s.kill(r.IntN(len(s.in.Replicas)))
					}
				case 2:
					if len(s.in.Replicas) > 1 {
						s.drain(r.IntN(len(s.in.Replicas)))
					}
				case 3:
					s.in.Replicas[r.IntN(len(s.in.Replicas))].Draining = one(r, true, false)
				case 4:
					s.in.Weight = random(r, 256, r.IntN(800), 20)
				default:
					s.table, _ = Plan(s.table, s.in)
				}
				s.in.Stalled, s.in.Settling = r.IntN(2) == 0, r.IntN(4) == 0
			}
			for i := range s.in.Replicas {
				s.in.Replicas[i].Draining = false
			}
			s.in.Stalled, s.in.Settling = true, false
			s.settle()
			s.checkBalance()
		})
	}
}

func TestOrphansAreAssignedAtOnce(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 1024, 1000, 10))
			s.join(10, "r1")
			s.settle()
			s.kill(r.IntN(10))
			s.in.Settling = true // That changes nothing for orphans.
			planned, steps := Plan(s.table, s.in)
			s.table = planned
			s.checkBalance()
			if slices.ContainsFunc(steps, func(step Step) bool { return step.Do != Claimed || step.Why != Unowned || step.From != "" }) {
				t.Errorf("steps are %v, want claims of what nobody owns", steps)
			}
		})
	}
}

func TestAnEmptyTableWaitsForThoseThatJoinTogether(t *testing.T) {
	s := shared(t, random(rand.New(rand.NewPCG(1, 1)), 64, 100, 1))
	s.join(1, "r1")
	s.in.Settling = true
	if _, steps := Plan(s.table, s.in); len(steps) > 0 {
		t.Fatalf("steps are %v while replicas join", steps)
	}
	s.join(2, "r1")
	s.in.Settling = false
	s.settle()
	s.checkBalance()
	if s.moved > 0 {
		t.Errorf("%d moved, want that all three got their share at once", s.moved)
	}
}

func TestWhatADrainingReplicaHasMovesAtOnceToTheNewestRevision(t *testing.T) {
	s := shared(t, random(rand.New(rand.NewPCG(1, 1)), 64, 640, 1))
	s.join(4, "r1")
	s.settle()
	s.join(3, "r2")
	s.join(1, "r1") // An old one has started again.
	s.in.Replicas[1].Draining = true
	planned, steps := Plan(s.table, s.in)
	if len(steps) != len(s.table.Due("r1", true)) || len(steps) == 0 {
		t.Errorf("%d steps for %d buckets", len(steps), len(s.table.Due("r1", true)))
	}
	for _, step := range steps {
		want := Step{Do: Moved, Bucket: step.Bucket, From: "r1", To: step.To, Why: Draining}
		if step != want || !slices.Contains([]string{"r4", "r5", "r6"}, planned.Moving[step.Bucket]) {
			t.Errorf("step is %v, want one from r1 to a replica of r2", step)
		}
	}
}

func TestTheNewestRevisionIsNotOverloaded(t *testing.T) {
	s := shared(t, random(rand.New(rand.NewPCG(1, 1)), 256, 2560, 1))
	s.join(8, "r1")
	s.settle()
	s.join(1, "r2") // That is all of a rolling update that got stuck.
	for range 5 {
		s.kill(0)
		s.step()
	}
	load, _ := s.loads()
	mean := float64(total(s.in.Weight)) / 4
	if newest := load["r8"]; newest < mean || newest > 2*mean {
		t.Errorf("the load of the newest is %.0f, want between the mean, %.0f, and twice that", newest, mean)
	}
}

func TestNothingIsBalancedWhileTwoRevisionsLive(t *testing.T) {
	s := shared(t, random(rand.New(rand.NewPCG(1, 1)), 64, 640, 1))
	s.join(2, "r1")
	s.settle()
	s.join(1, "r2")
	if _, steps := Plan(s.table, s.in); len(steps) > 0 {
		t.Errorf("steps are %v", steps)
	}
	s.in.Stalled = true
	s.settle()
	s.checkBalance()
}

func TestWhatMovesToALostReplicaMovesElsewhere(t *testing.T) {
	s := shared(t, []int64{10, 10, 10, 10})
	s.join(3, "r1")
	for b := range 4 {
		must(t, s.table.Claim(b, "r0"))
	}
	must(t, s.table.Move(0, "r1"))
	s.in.Replicas[1].Draining = true
	planned, steps := Plan(s.table, s.in)
	if len(steps) == 0 || steps[0] != (Step{Do: Cancelled, Bucket: 0, From: "r0", Why: TargetLost}) {
		t.Errorf("steps are %v, want that the move to r1 is cancelled", steps)
	}
	for b, to := range planned.Moving {
		if to == "r1" {
			t.Errorf("bucket %d moves to r1, which drains", b)
		}
	}
}

func TestAtMostATenthMovesAtOnce(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			s := shared(t, random(r, 1024, 10000, 1))
			s.join(2, "r1")
			s.settle()
			s.join(2, "r1")
			for range 3 { // Nothing is acknowledged.
				s.table, _ = Plan(s.table, s.in)
				var moving int64
				for b := range s.table.Moving {
					if s.in.Weight[b] > 0 {
						moving += s.in.Weight[b]
					}
				}
				if moving > total(s.in.Weight)/10 || moving < total(s.in.Weight)/20 {
					t.Errorf("%d of %d move at once", moving, total(s.in.Weight))
				}
			}
		})
	}
}

func TestBucketsThatAreToBeKeptAreNotMovedForBalance(t *testing.T) {
	s := shared(t, slices.Repeat([]int64{10}, 64))
	s.join(1, "r1")
	s.settle()
	s.join(1, "r1")
	s.in.Keep = map[int]bool{}
	for b := range 40 {
		s.in.Keep[b] = true
	}
	s.settle()
	for b := range 40 {
		if s.moves[b] > 0 {
			t.Errorf("bucket %d has moved", b)
		}
	}
	if load, _ := s.loads(); load["r1"] != 240 {
		t.Errorf("loads are %v, want that r1 has what may move", load)
	}
	s.drain(0)
	s.checkOwned()
}

func TestABucketThatIsHeavierThanMayMoveAtOnceMovesAlone(t *testing.T) {
	s := shared(t, []int64{50, 50, 0, 0})
	s.join(1, "r1")
	s.settle()
	s.join(1, "r1")
	s.settle()
	if load, _ := s.loads(); load["r0"] != 50 || load["r1"] != 50 {
		t.Errorf("loads are %v, want 50 each", load)
	}
}

func TestOneHeavyBucketDoesNotUnbalanceTheRest(t *testing.T) {
	weight := random(rand.New(rand.NewPCG(1, 1)), 256, 2000, 1)
	weight[7] = 5000
	s := shared(t, weight)
	s.join(5, "r1")
	s.settle()
	s.checkOwned()
	load, _ := s.loads()
	for name, l := range load {
		if l < 5000 && (l < 450 || l > 550) {
			t.Errorf("the load of %s is %.0f, want about 500: %v", name, l, load)
		}
	}
}

func TestBucketsWithoutMembersAreSpreadByNumber(t *testing.T) {
	for seed, r := range seeds {
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			weight := make([]int64, 1024)
			for range 20 {
				weight[r.IntN(1024)] = 1
			}
			s := shared(t, weight)
			s.join(3, "r1")
			s.settle()
			s.join(1, "r1")
			s.settle()
			s.checkBalance()
			_, empty := s.loads()
			for name, n := range empty {
				if n < 225 || n > 282 {
					t.Errorf("%s has %d buckets without members, want about 251", name, n)
				}
			}
		})
	}
}

func TestMembersOfAnInputThatKnowsNoWeightsAreSpreadByNumber(t *testing.T) {
	table := joined(t, 100, "a", "b")
	planned, _ := Plan(table, Input{Replicas: []Replica{{Session: "a"}, {Session: "b"}, {Session: "stranger"}}})
	if n := len(planned.Due("a", true)); n != 50 {
		t.Errorf("a has %d of 100 buckets", n)
	}
}

func TestNothingIsPlannedForNobody(t *testing.T) {
	table := joined(t, 2, "a")
	must(t, table.Claim(0, "a"))
	for name, replicas := range map[string][]Replica{"none lives": nil, "all drain": {{Session: "a", Draining: true}}, "a stranger": {{Session: "b"}}} {
		if _, steps := Plan(table, Input{Replicas: replicas}); len(steps) > 0 {
			t.Errorf("%s: steps are %v", name, steps)
		}
	}
}

// A Deployment starts surge new replicas at a time, and ends as many old ones once they run. With surge 0 it ends one first.
func TestARollingUpdateMovesEachMemberAboutOnce(t *testing.T) {
	for _, c := range []struct {
		replicas, surge int
		most            float64 // Moves per member.
	}{{1, 1, 1}, {3, 1, 1.1}, {3, 3, 1.1}, {10, 1, 1.1}, {10, 3, 1.1}, {50, 13, 1.1}, {3, 0, 1.7}, {10, 0, 1.2}} {
		t.Run(fmt.Sprint(c.replicas, " replicas, surge ", c.surge), func(t *testing.T) {
			s := shared(t, random(rand.New(rand.NewPCG(1, 1)), 1024, 10000, 1))
			s.join(c.replicas, "r1")
			s.settle()
			s.moved = 0
			for old := c.replicas; old > 0; {
				if c.surge == 0 {
					s.drain(0)
					s.step()
					s.join(1, "r2")
					old--
				}
				for n := min(c.surge, old); n > 0; n-- {
					s.join(1, "r2")
					s.step()
				}
				for n := min(c.surge, old); n > 0; n-- {
					s.drain(0)
					old--
				}
			}
			s.settle()
			s.checkBalance()
			if moves := float64(s.moved) / float64(total(s.in.Weight)); moves > c.most {
				t.Errorf("each member moved %.2f times, want at most %.2f", moves, c.most)
			} else {
				t.Logf("each member moved %.2f times", moves)
			}
		})
	}
}
