package rollout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// of is how many targets there are.
func of(n int) func() int { return func() int { return n } }

// fleetOf is what a rollout is tried on: each cluster has something to be written, and takes some looks until it is ready.
type fleetOf struct {
	*Progress
	targets  int
	queue    []mcreconcile.ClusterName // to be looked at
	looks    int
	left     map[mcreconcile.ClusterName]int // looks until it is ready, once it was written to
	begun    map[mcreconcile.ClusterName]bool
	never    map[mcreconcile.ClusterName]Outcome // what it comes to in place of being complete
	mostOpen int
}

func newFleetOf(policy Policy, n int, rng *rand.Rand) *fleetOf {
	f := &fleetOf{
		Progress: New(policy, "1"), targets: n, left: map[mcreconcile.ClusterName]int{},
		begun: map[mcreconcile.ClusterName]bool{}, never: map[mcreconcile.ClusterName]Outcome{},
	}
	f.change(rng)
	return f
}

// change lets each cluster need a write.
func (f *fleetOf) change(rng *rand.Rand) {
	for i := range f.targets {
		name := mcreconcile.ClusterName(fmt.Sprintf("member-%04d", i))
		f.queue = append(f.queue, name)
		f.left[name] = rng.IntN(3)
		delete(f.begun, name)
	}
}

// look is what a worker does with a cluster.
func (f *fleetOf) look(name mcreconcile.ClusterName) Outcome {
	f.looks++
	if !f.begun[name] {
		if err := f.Ask(name, of(f.targets)); err != nil {
			return Other
		}
		f.begun[name] = true
	}
	if what, ok := f.never[name]; ok {
		return what
	}
	if f.left[name] > 0 {
		f.left[name]--
		f.queue = append(f.queue, name) // an event tells of it
		return NotReady
	}
	return Complete
}

// run works until there is nothing to do.
func (f *fleetOf) run(rng *rand.Rand) {
	for len(f.queue) > 0 {
		i := rng.IntN(len(f.queue))
		name := f.queue[i]
		f.queue = append(f.queue[:i], f.queue[i+1:]...)
		f.Note(name, f.look(name))
		f.mostOpen = max(f.mostOpen, len(f.held))
		if len(f.seen) == f.targets {
			f.queue = append(f.queue, f.Grant(f.targets)...)
		}
	}
}

func TestARolloutChangesSoManyClustersAtOnceAndAllAtLast(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most intstr.IntOrString
		want int
	}{
		"One": {intstr.FromInt32(1), 1}, "Some": {intstr.FromInt32(7), 7}, "Percentage": {intstr.FromString("5%"), 50},
		"LessThanOne": {intstr.FromString("0%"), 1}, "NoLimit": {intstr.IntOrString{}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const targets = 1000
			rng := rand.New(rand.NewPCG(1, 2))
			f := newFleetOf(Policy{MaxParallel: tt.most, HaltAfter: 1}, targets, rng)
			f.run(rng)
			if len(f.begun) != targets || f.mostOpen > tt.want || len(f.held) > 0 || len(f.waiting) > 0 {
				t.Errorf("%d clusters were changed, %d at once, want %d; %d still are, and %d wait", len(f.begun), f.mostOpen, tt.want, len(f.held), len(f.waiting))
			}
			if f.looks > 5*targets {
				t.Errorf("clusters were looked at %d times, which is more than a few times each", f.looks)
			}
		})
	}
}

// TestARolloutThatLimitsNothingWaitsForNoCluster: each begins at once, also one that has waited while there was a limit.
func TestARolloutThatLimitsNothingWaitsForNoCluster(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy Policy
		waits  bool
	}{
		"NoLimit": {Policy{}, false}, "All": {Policy{MaxParallel: intstr.FromString("100%")}, false},
		"AsMany": {Policy{MaxParallel: intstr.FromInt32(3)}, false}, "Fewer": {Policy{MaxParallel: intstr.FromInt32(2)}, true},
		"AllUntilOneFails": {Policy{HaltAfter: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
			if err := p.Ask("a", of(3)); err == nil {
				t.Fatal("a permit was given before all were looked at")
			}
			p.Next(tt.policy, "1")
			if err := p.Ask("a", of(3)); (err != nil) != tt.waits || p.HasWaiting() != tt.waits || p.held["a"] == tt.waits {
				t.Errorf("it waits: %v, being changed: %t", err, p.held["a"])
			}
		})
	}
}

// TestAPermitIsNotKeptWithoutAnAnswer: it may be long until the cluster is looked at again.
func TestAPermitIsNotKeptWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	for _, name := range []mcreconcile.ClusterName{"a", "b"} {
		if err := p.Ask(name, of(2)); err == nil {
			t.Fatal("a permit was given before all were looked at")
		}
	}
	p.Grant(2)
	p.Note("a", Unread)
	if given := p.Grant(2); len(given) != 1 || given[0] != "b" {
		t.Errorf("the permit is given to %v", given)
	}
}

// TestAClusterThatCannotBeReadAtFirstCountsOnceItIs, as one that is being changed, and is not waited for without end.
func TestAClusterThatCannotBeReadAtFirstCountsOnceItIs(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	for range mostUnread - 1 {
		if p.Note("a", Unread); p.seen["a"] {
			t.Fatal("it counts as looked at")
		}
	}
	if p.Note("a", Unread); !p.seen["a"] {
		t.Error("it is waited for without end")
	}
	if p.Note("a", NotReady); !p.held["a"] {
		t.Error("it is not being changed")
	}
	if p.Left("a"); len(p.seen)+len(p.read)+len(p.unread)+len(p.held) > 0 {
		t.Errorf("something is left of it: %+v", p)
	}
}

// TestAClusterInWhichNothingCanBeBegunGivesItsTurnToOthers, and one that was begun is being changed all the while.
func TestAClusterInWhichNothingCanBeBegunGivesItsTurnToOthers(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	for _, name := range []mcreconcile.ClusterName{"a", "b"} {
		if err := p.Ask(name, of(2)); err == nil {
			t.Fatalf("%s has a permit: %v", name, err)
		}
	}
	p.Grant(2)
	if p.Pass("a"); len(p.held) > 0 {
		t.Errorf("%v hold a permit", p.held)
	}
	p.Grant(2)
	if err := p.Ask("b", of(2)); err != nil {
		t.Errorf("the other one has none: %v", err)
	}
	if p.Pass("b"); !p.held["b"] {
		t.Error("one that was begun has given it back")
	}
}

func TestAClusterThatNeverGetsReadyHoldsItsPermitAlone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	f := newFleetOf(Policy{MaxParallel: intstr.FromInt32(2)}, 100, rng)
	f.never["member-0007"] = NotReady
	f.run(rng)
	if len(f.begun) != 100 || len(f.held) != 1 {
		t.Errorf("%d clusters were changed, and %v have a permit", len(f.begun), f.held)
	}
	f.Left("member-0007")
	if len(f.held) != 0 {
		t.Errorf("one that is no target any more has a permit: %v", f.held)
	}
}

func TestARolloutHaltsAfterFailuresUntilTheOwnerIsChanged(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	policy := Policy{MaxParallel: intstr.FromInt32(1), HaltAfter: 3}
	f := newFleetOf(policy, 1000, rng)
	for name := range f.left {
		f.never[name] = Failed
	}
	f.run(rng)
	if len(f.begun) != 3 || len(f.failed) != 3 || len(f.held)+len(f.waiting) > 0 {
		t.Fatalf("%d clusters were changed, %d have failed, %d have a permit, and %d wait", len(f.begun), len(f.failed), len(f.held), len(f.waiting))
	}
	if err := f.Ask("member-x", of(f.targets)); err == nil {
		t.Errorf("a further cluster may be changed: %v", err)
	}
	for name := range f.begun {
		if err := f.Ask(name, of(f.targets)); err != nil {
			t.Errorf("one that has failed is not tried again: %v", err)
		}
	}
	f.Next(policy, "1")
	if !f.isHalted() {
		t.Error("it goes on though the owner is as before")
	}
	f.Next(policy, "2")
	clear(f.never)
	f.change(rng)
	f.run(rng)
	if len(f.begun) != 1000 || f.mostOpen > 1 {
		t.Errorf("after the change, %d clusters were changed, %d at once", len(f.begun), f.mostOpen)
	}
}

func TestAnOwnerThatChangesMeanwhileIsRolledOutAnew(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	policy := Policy{MaxParallel: intstr.FromInt32(5)}
	f := newFleetOf(policy, 1000, rng)
	for i := range 20 {
		for range 500 {
			name := f.queue[0]
			f.queue = f.queue[1:]
			f.Note(name, f.look(name))
			if len(f.seen) == f.targets {
				f.queue = append(f.queue, f.Grant(f.targets)...)
			}
			f.mostOpen = max(f.mostOpen, len(f.held))
			if len(f.queue) == 0 {
				break
			}
		}
		f.Next(policy, fmt.Sprint(i+2))
		f.queue = nil
		f.change(rng)
	}
	f.run(rng)
	if len(f.begun) != 1000 || f.mostOpen > 5 || len(f.held) > 0 {
		t.Errorf("%d clusters were changed, %d at once, and %d still are", len(f.begun), f.mostOpen, len(f.held))
	}
}

// TestAfterARestartClustersThatAreNotReadyCountAsBeingChanged: those that are as desired and ready do not.
func TestAfterARestartClustersThatAreNotReadyCountAsBeingChanged(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	if err := p.Ask("c", of(3)); err == nil {
		t.Fatalf("one may be changed that others were not looked at: %v", err)
	}
	p.Note("c", Other)
	p.Note("a", Complete)
	p.Note("b", NotReady)
	if given := p.Grant(3); len(given) > 0 {
		t.Errorf("%v may be changed while another one is", given)
	}
	p.Note("b", Complete)
	if given := p.Grant(3); len(given) != 1 || given[0] != "c" {
		t.Errorf("%v may be changed, want c", given)
	}
	p.Note("a", NotReady) // it was rolled out before
	if len(p.held) != 1 {
		t.Errorf("%v have a permit, want c alone", p.held)
	}
}

// TestAfterARestartARolloutIsStillHalted: what was applied says that it has failed.
func TestAfterARestartARolloutIsStillHalted(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(5), HaltAfter: 1}, "1")
	if err := p.Ask("b", of(2)); err == nil {
		t.Fatalf("one may be changed that others were not looked at: %v", err)
	}
	p.Note("b", Other)
	p.Note("a", Stalled)
	p.Grant(2)
	if err := p.Ask("b", of(2)); err == nil || !p.isHalted() {
		t.Errorf("it goes on: %v", err)
	}
}

// TestAfterARestartFailuresCountThatWereNoted: unless it is something else that is rolled out now. Those that have failed are tried again without
// a permit, and hold none.
func TestAfterARestartFailuresCountThatWereNoted(t *testing.T) {
	t.Parallel()
	policy := Policy{MaxParallel: intstr.FromInt32(1), HaltAfter: 2}
	begin := func(revision string, noted *record.Failures) *Progress {
		p := New(policy, revision)
		p.Recall(noted)
		return p
	}
	before := begin("1", nil)
	for _, name := range []mcreconcile.ClusterName{"a", "b"} {
		before.held[name] = true
		before.Note(name, Failed)
	}
	noted := before.Failures()
	p := begin("1", noted)
	if err := p.Ask("c", of(3)); err == nil || !p.isHalted() {
		t.Errorf("it goes on: %v", err)
	}
	if err := p.Ask("a", of(3)); err != nil {
		t.Errorf("one that has failed is not tried again: %v", err)
	}
	if p.Note("a", NotReady); len(p.held) > 0 {
		t.Errorf("%v hold a permit", p.held)
	}
	if diff := cmp.Diff(noted, p.Failures()); diff != "" {
		t.Errorf("the failures (-before, +after):\n%s", diff)
	}
	if p.Left("a"); p.isHalted() {
		t.Error("it is halted by one that is no target any more")
	}
	if p.Next(policy, "2"); p.Failures() != nil {
		t.Errorf("the owner was changed, and these count: %+v", p.Failures())
	}
	policy.HaltAfter = 0
	if err := begin("1", noted).Ask("a", of(3)); err == nil {
		t.Errorf("nothing is to halt any more, and one that has failed waits for no permit: %v", err)
	}
	policy.HaltAfter = 2
	if p := begin("2", noted); p.isHalted() || p.Failures() != nil {
		t.Errorf("the owner was changed while nothing ran, and these count: %+v", p.Failures())
	}
}

// TestFailuresThatAreNotNamedCountOnceTheyHaveFailedAgain, and no more of them with each restart. Once those that are named are no targets any
// more, the others are tried.
func TestFailuresThatAreNotNamedCountOnceTheyHaveFailedAgain(t *testing.T) {
	t.Parallel()
	policy, all := Policy{HaltAfter: 5}, make([]mcreconcile.ClusterName, record.MostFailures+50)
	for i := range all {
		all[i] = mcreconcile.ClusterName(fmt.Sprintf("member-%03d", i))
	}
	p := New(policy, "1")
	for range 3 {
		for _, name := range all {
			p.Note(name, Stalled)
		}
		if err := p.Ask("z", of(len(all)+1)); err == nil || !strings.Contains(err.Error(), "150 clusters have failed") {
			t.Errorf("it goes on: %v", err)
		}
		noted := p.Failures()
		p = New(policy, "1")
		if p.Recall(noted); !p.isHalted() || len(p.failed) != record.MostFailures {
			t.Errorf("after a restart, %d have failed", len(p.failed))
		}
	}
	for name := range maps.Clone(p.failed) {
		p.Left(name)
	}
	if p.isHalted() {
		t.Error("what is no target any more halts it")
	}
	if p.Next(Policy{MaxParallel: intstr.FromInt32(1)}, "1"); p.Failures() != nil {
		t.Errorf("nothing is to halt, and this is noted: %+v", p.Failures())
	}
}

// TestAPermitIsNotKeptWithoutUse: by one that has failed before it began, such as with a panic, has left, or cannot be used.
func TestAPermitIsNotKeptWithoutUse(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*Progress){
		"Failed": func(p *Progress) { p.Note("a", Failed) },
		"Other":  func(p *Progress) { p.Note("a", Other) },
		"Left":   func(p *Progress) { p.Left("a") },
		"Away":   func(p *Progress) { p.Away("a") },
		"Absent": func(p *Progress) { p.Absent("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Policy{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}, "1")
			for _, name := range []mcreconcile.ClusterName{"a", "b"} {
				if err := p.Ask(name, of(2)); err == nil {
					t.Fatal("a permit was given before all were looked at")
				}
				p.Note(name, Other)
			}
			if given := p.Grant(2); len(given) != 1 || given[0] != "a" {
				t.Fatalf("the permit is given to %v", given)
			}
			lose(p)
			if given := p.Grant(2); len(given) != 1 || given[0] != "b" || p.isHalted() {
				t.Errorf("the permit is given to %v", given)
			}
		})
	}
}

func TestOneThatGoesAwayWhileItIsBeingChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		haltAfter   int
		goes        func(*Progress, mcreconcile.ClusterName)
		held, halts bool
	}{
		"KeepsItsPermit":             {0, (*Progress).Away, true, false},
		"HasFailed":                  {1, (*Progress).Away, false, true},
		"KeepsItsPermitForTheMoment": {1, (*Progress).Absent, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Policy{MaxParallel: intstr.FromInt32(1), HaltAfter: tt.haltAfter}, "1")
			p.held["a"] = true
			tt.goes(p, "a")
			if _, held := p.held["a"]; held != tt.held || p.isHalted() != tt.halts {
				t.Errorf("it has a permit: %t, halted: %t", held, p.isHalted())
			}
		})
	}
}

// TestAPolicyThatIsChangedHolds, for what waits too.
func TestAPolicyThatIsChangedHolds(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	for _, name := range []mcreconcile.ClusterName{"a", "b", "c"} {
		if err := p.Ask(name, of(3)); err == nil {
			t.Fatal("a permit was given before all were looked at")
		}
		p.Note(name, Other)
	}
	if given := p.Grant(3); len(given) != 1 {
		t.Fatalf("permits are given to %v", given)
	}
	p.Next(Policy{MaxParallel: intstr.FromInt32(2), HaltAfter: 1}, "1")
	if given := p.Grant(3); len(given) != 1 || len(p.held) != 2 {
		t.Errorf("permits are given to %v, so that %d have one, want 2", given, len(p.held))
	}
	p.Away("a")
	if err := p.Ask("a", of(3)); err == nil {
		t.Error("one that was not begun keeps its permit")
	}
	if err := p.Ask("b", of(3)); err != nil {
		t.Error(err)
	}
	if p.Away("b"); !p.isHalted() {
		t.Error("it is not halted")
	}
	if p.Next(Policy{MaxParallel: intstr.FromInt32(2)}, "1"); p.isHalted() {
		t.Error("it is halted, and nothing says that it is to be")
	}
}

// TestAClusterThatIsNoTargetAnyMoreHaltsNoRollout, also if it cannot be looked at since it has failed.
func TestAClusterThatIsNoTargetAnyMoreHaltsNoRollout(t *testing.T) {
	t.Parallel()
	p := New(Policy{HaltAfter: 1}, "1")
	p.held["bad"] = true
	p.Note("bad", Failed)
	if err := p.Ask("good", of(2)); !p.isHalted() || err == nil {
		t.Fatal("a cluster that has failed halts nothing")
	}
	if !slices.Contains(p.Involved(), "bad") {
		t.Error("nobody looks whether the one that has failed is a target")
	}
	p.Left("bad")
	if p.isHalted() {
		t.Errorf("a cluster that is no target any more halts the rollout: %v", p.Ask("good", of(1)))
	}
}

// TestAClusterThatWasReachedIsNotAbsent, also if a request got no answer there: others wait until it was looked at.
func TestAClusterThatWasReachedIsNotAbsent(t *testing.T) {
	t.Parallel()
	for what, absent := range map[Outcome]bool{NotLooked: true, Unread: false, Other: false} {
		p := New(Policy{}, "1")
		p.Absent("a")
		if p.Note("a", what); p.IsAbsent("a") != absent {
			t.Errorf("after %v it is absent: %t", what, !absent)
		}
	}
}

// TestAfterARestartAHaltedRolloutGoesOnWhereItWasBegun, and nowhere else. What is done is noted no more, and what was not begun was not noted.
func TestAfterARestartAHaltedRolloutGoesOnWhereItWasBegun(t *testing.T) {
	t.Parallel()
	policy := Policy{MaxParallel: intstr.FromInt32(3), HaltAfter: 1}
	p := New(policy, "1")
	p.held["a"], p.held["bad"], p.held["c"] = true, true, false
	if noted := p.Failures(); noted != nil {
		t.Errorf("nothing has failed, and this is noted: %+v", noted)
	}
	p.Note("bad", Failed)
	noted := p.Failures()
	if diff := cmp.Diff(record.NewFailures("1", []mcreconcile.ClusterName{"bad"}, "a"), noted); diff != "" {
		t.Errorf("this is noted (-want, +got):\n%s", diff)
	}
	p = New(policy, "1")
	p.Recall(noted)
	if diff := cmp.Diff(noted, p.Failures()); diff != "" {
		t.Errorf("after the restart this is noted (-before, +after):\n%s", diff)
	}
	if a, c := p.Ask("a", of(3)), p.Ask("c", of(3)); a != nil || c == nil {
		t.Errorf("the one that was begun waits: %v; another one: %v", a, c)
	}
	if p.Note("a", Complete); len(p.Failures().Begun) > 0 || p.Ask("a", of(3)) == nil {
		t.Errorf("it is done, and this is noted: %+v", p.Failures())
	}
	p = New(policy, "2")
	if p.Recall(noted); len(p.held) > 0 {
		t.Errorf("the owner was changed, and %v are being changed", p.held)
	}
}

// TestTheFurthestClusterIsNext, and of those that are as far the first that has asked.
func TestTheFurthestClusterIsNext(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	far := map[mcreconcile.ClusterName]int{"c": 2, "b": 1, "a": 1}
	for _, name := range []mcreconcile.ClusterName{"d", "b", "a", "c"} {
		if err := p.Ask(name, of(4)); err == nil {
			t.Fatal("a permit was given before all were looked at")
		}
	}
	for _, want := range []mcreconcile.ClusterName{"c", "b", "a", "d"} {
		p.Order(func(name mcreconcile.ClusterName) int { return far[name] })
		if got := p.Grant(4); len(got) != 1 || got[0] != want {
			t.Errorf("%v is next, want %s", got, want)
		}
		p.Note(want, Complete)
	}
}

// TestAClusterThatIsFoundToBeChangedAwaitsNoTurn, although it had asked for one before it could be read.
func TestAClusterThatIsFoundToBeChangedAwaitsNoTurn(t *testing.T) {
	t.Parallel()
	p := New(Policy{MaxParallel: intstr.FromInt32(1)}, "1")
	if err := p.Ask("a", of(2)); err == nil {
		t.Fatal("a permit was given before all were looked at")
	}
	p.Note("a", NotReady)
	if given := p.Grant(2); len(given) > 0 || !p.held["a"] || p.HasWaiting() {
		t.Errorf("it is the turn of %v, and it is being changed: %t", given, p.held["a"])
	}
}

// TestHowManyTargetsThereAreIsAskedOnlyIfItMatters: each object of each cluster asks for a permit.
func TestHowManyTargetsThereAreIsAskedOnlyIfItMatters(t *testing.T) {
	t.Parallel()
	never := func() int {
		t.Error("it is asked")
		return 1
	}
	for _, policy := range []Policy{{}, {HaltAfter: 1}, {MaxParallel: intstr.FromInt32(1)}} {
		p := New(policy, "1")
		p.held["a"] = true
		if err := p.Ask("a", never); err != nil {
			t.Error(err)
		}
	}
	if err := New(Policy{}, "1").Ask("b", never); err != nil {
		t.Error(err)
	}
}
