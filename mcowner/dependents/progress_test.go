package dependents

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// fleetOf is what a rollout is tried on: each cluster has something to be written, and takes some looks until it is ready.
type fleetOf struct {
	*progress
	targets  int
	queue    []mcreconcile.ClusterName // to be looked at
	looks    int
	left     map[mcreconcile.ClusterName]int // looks until it is ready, once it was written to
	begun    map[mcreconcile.ClusterName]bool
	never    map[mcreconcile.ClusterName]outcome // what it comes to in place of being complete
	mostOpen int
}

func newFleetOf(policy Rollout, n int, rng *rand.Rand) *fleetOf {
	var none *progress
	f := &fleetOf{
		progress: none.next(policy, hash{1}), targets: n, left: map[mcreconcile.ClusterName]int{},
		begun: map[mcreconcile.ClusterName]bool{}, never: map[mcreconcile.ClusterName]outcome{},
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
func (f *fleetOf) look(name mcreconcile.ClusterName) outcome {
	f.looks++
	if !f.begun[name] {
		if err := f.ask(name, f.targets); err != nil {
			return other
		}
		f.begun[name] = true
	}
	if what, ok := f.never[name]; ok {
		return what
	}
	if f.left[name] > 0 {
		f.left[name]--
		f.queue = append(f.queue, name) // an event tells of it
		return notReady
	}
	return complete
}

// run works until there is nothing to do.
func (f *fleetOf) run(rng *rand.Rand) {
	for len(f.queue) > 0 {
		i := rng.IntN(len(f.queue))
		name := f.queue[i]
		f.queue = append(f.queue[:i], f.queue[i+1:]...)
		f.note(name, f.look(name))
		f.mostOpen = max(f.mostOpen, len(f.held))
		if len(f.seen) == f.targets {
			f.queue = append(f.queue, f.grant(f.targets)...)
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
			f := newFleetOf(Rollout{MaxParallel: tt.most, HaltAfter: 1}, targets, rng)
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

// TestAClusterThatCannotBeReadAtFirstCountsOnceItIs, as one that is being changed, and is not waited for without end.
func TestAClusterThatCannotBeReadAtFirstCountsOnceItIs(t *testing.T) {
	t.Parallel()
	var none *progress
	p := none.next(Rollout{MaxParallel: intstr.FromInt32(1)}, hash{1})
	for range mostUnread - 1 {
		if p.note("a", unread); p.seen["a"] {
			t.Fatal("it counts as looked at")
		}
	}
	if p.note("a", unread); !p.seen["a"] {
		t.Error("it is waited for without end")
	}
	if p.note("a", notReady); !p.held["a"] {
		t.Error("it is not being changed")
	}
	if p.left("a"); len(p.seen)+len(p.read)+len(p.unread)+len(p.held) > 0 {
		t.Errorf("something is left of it: %+v", p)
	}
}

// TestAClusterInWhichNothingCanBeBegunGivesItsTurnToOthers, and one that was begun is being changed all the while.
func TestAClusterInWhichNothingCanBeBegunGivesItsTurnToOthers(t *testing.T) {
	t.Parallel()
	var none *progress
	p := none.next(Rollout{MaxParallel: intstr.FromInt32(1)}, hash{1})
	for _, name := range []mcreconcile.ClusterName{"a", "b"} {
		if err := p.ask(name, 2); !errors.Is(err, ErrWaiting) {
			t.Fatalf("%s has a permit: %v", name, err)
		}
	}
	p.grant(2)
	if p.pass("a"); len(p.held) > 0 {
		t.Errorf("%v hold a permit", p.held)
	}
	p.grant(2)
	if err := p.ask("b", 2); err != nil {
		t.Errorf("the other one has none: %v", err)
	}
	if p.pass("b"); !p.held["b"] {
		t.Error("one that was begun has given it back")
	}
}

func TestAClusterThatNeverGetsReadyHoldsItsPermitAlone(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	f := newFleetOf(Rollout{MaxParallel: intstr.FromInt32(2)}, 100, rng)
	f.never["member-0007"] = notReady
	f.run(rng)
	if len(f.begun) != 100 || len(f.held) != 1 {
		t.Errorf("%d clusters were changed, and %v have a permit", len(f.begun), f.held)
	}
	f.progress.left("member-0007")
	if len(f.held) != 0 {
		t.Errorf("one that is no target any more has a permit: %v", f.held)
	}
}

func TestARolloutHaltsAfterFailuresUntilTheOwnerIsChanged(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	policy := Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 3}
	f := newFleetOf(policy, 1000, rng)
	for name := range f.left {
		f.never[name] = failed
	}
	f.run(rng)
	if len(f.begun) != 3 || len(f.failed) != 3 || len(f.held)+len(f.waiting) > 0 {
		t.Fatalf("%d clusters were changed, %d have failed, %d have a permit, and %d wait", len(f.begun), len(f.failed), len(f.held), len(f.waiting))
	}
	if err := f.ask("member-x", f.targets); !errors.Is(err, ErrWaiting) {
		t.Errorf("a further cluster may be changed: %v", err)
	}
	for name := range f.begun {
		if err := f.ask(name, f.targets); err != nil {
			t.Errorf("one that has failed is not tried again: %v", err)
		}
	}
	f.next(policy, hash{1})
	if !f.isHalted() {
		t.Error("it goes on though the owner is as before")
	}
	f.next(policy, hash{2})
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
	policy := Rollout{MaxParallel: intstr.FromInt32(5)}
	f := newFleetOf(policy, 1000, rng)
	for i := range 20 {
		for range 500 {
			name := f.queue[0]
			f.queue = f.queue[1:]
			f.note(name, f.look(name))
			if len(f.seen) == f.targets {
				f.queue = append(f.queue, f.grant(f.targets)...)
			}
			f.mostOpen = max(f.mostOpen, len(f.held))
			if len(f.queue) == 0 {
				break
			}
		}
		f.next(policy, hash{byte(i + 2)})
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
	var none *progress
	p := none.next(Rollout{MaxParallel: intstr.FromInt32(1)}, hash{1})
	if err := p.ask("c", 3); !errors.Is(err, ErrWaiting) {
		t.Fatalf("one may be changed that others were not looked at: %v", err)
	}
	p.note("c", other)
	p.note("a", complete)
	p.note("b", notReady)
	if given := p.grant(3); len(given) > 0 {
		t.Errorf("%v may be changed while another one is", given)
	}
	p.note("b", complete)
	if given := p.grant(3); len(given) != 1 || given[0] != "c" {
		t.Errorf("%v may be changed, want c", given)
	}
	p.note("a", notReady) // it was rolled out before
	if len(p.held) != 1 {
		t.Errorf("%v have a permit, want c alone", p.held)
	}
}

// TestAfterARestartARolloutIsStillHalted: what was applied says that it has failed.
func TestAfterARestartARolloutIsStillHalted(t *testing.T) {
	t.Parallel()
	var none *progress
	p := none.next(Rollout{MaxParallel: intstr.FromInt32(5), HaltAfter: 1}, hash{1})
	if err := p.ask("b", 2); !errors.Is(err, ErrWaiting) {
		t.Fatalf("one may be changed that others were not looked at: %v", err)
	}
	p.note("b", other)
	p.note("a", stalled)
	p.grant(2)
	if err := p.ask("b", 2); !errors.Is(err, ErrWaiting) || !p.isHalted() {
		t.Errorf("it goes on: %v", err)
	}
}

// TestAfterARestartFailuresCountThatWereNoted: unless it is something else that is rolled out now. Those that have failed are tried again without
// a permit, and hold none.
func TestAfterARestartFailuresCountThatWereNoted(t *testing.T) {
	t.Parallel()
	policy := Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 2}
	begin := func(revision hash, noted *record.Failures) *progress {
		var none *progress
		p := none.next(policy, revision)
		p.recall(noted)
		return p
	}
	before := begin(hash{1}, nil)
	for _, name := range []mcreconcile.ClusterName{"a", "b"} {
		before.held[name] = true
		before.note(name, failed)
	}
	noted := before.failures()
	p := begin(hash{1}, noted)
	if err := p.ask("c", 3); !errors.Is(err, ErrWaiting) || !p.isHalted() {
		t.Errorf("it goes on: %v", err)
	}
	if err := p.ask("a", 3); err != nil {
		t.Errorf("one that has failed is not tried again: %v", err)
	}
	if p.note("a", notReady); len(p.held) > 0 {
		t.Errorf("%v hold a permit", p.held)
	}
	if diff := cmp.Diff(noted, p.failures()); diff != "" {
		t.Errorf("the failures (-before, +after):\n%s", diff)
	}
	if p.left("a"); p.isHalted() {
		t.Error("it is halted by one that is no target any more")
	}
	if p.next(policy, hash{2}); p.failures() != nil {
		t.Errorf("the owner was changed, and these count: %+v", p.failures())
	}
	policy.HaltAfter = 0
	if err := begin(hash{1}, noted).ask("a", 3); !errors.Is(err, ErrWaiting) {
		t.Errorf("nothing is to halt any more, and one that has failed waits for no permit: %v", err)
	}
	policy.HaltAfter = 2
	if p := begin(hash{2}, noted); p.isHalted() || p.failures() != nil {
		t.Errorf("the owner was changed while nothing ran, and these count: %+v", p.failures())
	}
}

// TestFailuresThatAreNotNamedCountOnceTheyHaveFailedAgain, and no more of them with each restart. Once those that are named are no targets any
// more, the others are tried.
func TestFailuresThatAreNotNamedCountOnceTheyHaveFailedAgain(t *testing.T) {
	t.Parallel()
	var none *progress
	none.recall(&record.Failures{})
	policy, all := Rollout{HaltAfter: 5}, make([]mcreconcile.ClusterName, record.MostFailures+50)
	for i := range all {
		all[i] = mcreconcile.ClusterName(fmt.Sprintf("member-%03d", i))
	}
	p := none.next(policy, hash{1})
	for range 3 {
		for _, name := range all {
			p.note(name, stalled)
		}
		if err := p.ask("z", len(all)+1); !errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), "150 clusters have failed") {
			t.Errorf("it goes on: %v", err)
		}
		noted := p.failures()
		p = none.next(policy, hash{1})
		if p.recall(noted); !p.isHalted() || len(p.failed) != record.MostFailures {
			t.Errorf("after a restart, %d have failed", len(p.failed))
		}
	}
	for name := range maps.Clone(p.failed) {
		p.left(name)
	}
	if p.isHalted() {
		t.Error("what is no target any more halts it")
	}
	if p.next(Rollout{MaxParallel: intstr.FromInt32(1)}, hash{1}); p.failures() != nil {
		t.Errorf("nothing is to halt, and this is noted: %+v", p.failures())
	}
}

// TestAPermitIsNotKeptWithoutUse: by one that has failed before it began, such as with a panic, has left, or cannot be used.
func TestAPermitIsNotKeptWithoutUse(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*progress){
		"Failed": func(p *progress) { p.note("a", failed) },
		"Other":  func(p *progress) { p.note("a", other) },
		"Left":   func(p *progress) { p.left("a") },
		"Away":   func(p *progress) { p.away("a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var none *progress
			p := none.next(Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: 1}, hash{1})
			for _, name := range []mcreconcile.ClusterName{"a", "b"} {
				if err := p.ask(name, 2); err == nil {
					t.Fatal("a permit was given before all were looked at")
				}
				p.note(name, other)
			}
			if given := p.grant(2); len(given) != 1 || given[0] != "a" {
				t.Fatalf("the permit is given to %v", given)
			}
			lose(p)
			if given := p.grant(2); len(given) != 1 || given[0] != "b" || p.isHalted() {
				t.Errorf("the permit is given to %v", given)
			}
		})
	}
}

func TestOneThatGoesAwayWhileItIsBeingChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		haltAfter   int
		held, halts bool
	}{"KeepsItsPermit": {0, true, false}, "HasFailed": {1, false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var none *progress
			p := none.next(Rollout{MaxParallel: intstr.FromInt32(1), HaltAfter: tt.haltAfter}, hash{1})
			p.held["a"] = true
			p.away("a")
			if _, held := p.held["a"]; held != tt.held || p.isHalted() != tt.halts {
				t.Errorf("it has a permit: %t, halted: %t", held, p.isHalted())
			}
		})
	}
}

func TestRolloutsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []Rollout{
		{MaxParallel: intstr.FromInt32(-1)}, {MaxParallel: intstr.FromString("some")}, {MaxParallel: intstr.FromString("-3%")}, {HaltAfter: -1},
	} {
		if r.validate() == nil {
			t.Errorf("%+v is allowed", r)
		}
	}
	if err := (Rollout{}).validate(); err != nil {
		t.Error(err)
	}
}

// TestAPolicyThatIsChangedHolds, for what waits too.
func TestAPolicyThatIsChangedHolds(t *testing.T) {
	t.Parallel()
	var none *progress
	p := none.next(Rollout{MaxParallel: intstr.FromInt32(1)}, hash{1})
	for _, name := range []mcreconcile.ClusterName{"a", "b", "c"} {
		if err := p.ask(name, 3); err == nil {
			t.Fatal("a permit was given before all were looked at")
		}
		p.note(name, other)
	}
	if given := p.grant(3); len(given) != 1 {
		t.Fatalf("permits are given to %v", given)
	}
	p = p.next(Rollout{MaxParallel: intstr.FromInt32(2), HaltAfter: 1}, hash{1})
	if given := p.grant(3); len(given) != 1 || len(p.held) != 2 {
		t.Errorf("permits are given to %v, so that %d have one, want 2", given, len(p.held))
	}
	p.away("a")
	if err := p.ask("a", 3); err == nil {
		t.Error("one that was not begun keeps its permit")
	}
	if err := p.ask("b", 3); err != nil {
		t.Error(err)
	}
	if p.away("b"); !p.isHalted() {
		t.Error("it is not halted")
	}
	if p = p.next(Rollout{MaxParallel: intstr.FromInt32(2)}, hash{1}); p.isHalted() {
		t.Error("it is halted, and nothing says that it is to be")
	}
	if p.next(Rollout{}, hash{1}) != nil {
		t.Error("there is progress where nothing is limited")
	}
}
