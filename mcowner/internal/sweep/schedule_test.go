package sweep

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// schedule is a Sweeper of many clusters that are not there. It notes what would be asked of them, and when.
type schedule struct {
	*Sweeper

	mu     sync.Mutex // guards what follows
	start  time.Time
	lists  []time.Duration            // since the start
	last   map[string]time.Duration   // of a kind in a cluster
	pauses []time.Duration            // between two of a kind in a cluster
	looks  map[string][]time.Duration // at a cluster's cache
}

func newSchedule(members, kinds int) *schedule {
	o := Options{
		Watched: func(mcreconcile.ClusterName, schema.GroupVersionKind) bool { return false }, Pace: Pace{}.withDefaults(true),
	}
	s := &schedule{start: time.Now(), last: map[string]time.Duration{}, looks: map[string][]time.Duration{}}
	s.Sweeper = &Sweeper{
		Options: o, clusters: map[mcreconcile.ClusterName]*sweepMemory{},
		metrics: newSweepMetrics("test"), log: logr.Discard(),
	}
	s.limit = newLimit(s.QPS)
	for n := range kinds {
		s.kinds = append(s.kinds, remote.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: fmt.Sprint("Kind", n)}})
	}
	names := make([]mcreconcile.ClusterName, members)
	for n := range names {
		names[n] = mcreconcile.ClusterName(fmt.Sprint("member-", n))
	}
	s.names = func() []mcreconcile.ClusterName { return names }
	s.engagement = func(mcreconcile.ClusterName) *fleet.Engagement { return nil }
	s.visit = func(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, remote.Session) error) error {
		at := remote.Session{}
		at.ID.Name = name
		return do(ctx, at)
	}
	s.list = func(ctx context.Context, at remote.Session, k remote.Kind, _ func(client.Object) error) error {
		if err := s.limit.waitToList(ctx); err != nil {
			return err
		}
		<-time.After(100 * time.Millisecond) // the answer
		s.noteList(string(at.Name()) + "/" + k.Kind)
		return nil
	}
	s.Watched = func(in mcreconcile.ClusterName, _ schema.GroupVersionKind) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.looks[string(in)] = append(s.looks[string(in)], time.Since(s.start))
		return false
	}
	return s
}

func (s *schedule) noteList(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Since(s.start)
	if before, ok := s.last[what]; ok {
		s.pauses = append(s.pauses, now-before)
	}
	s.last[what] = now
	s.lists = append(s.lists, now)
}

// TestAThousandMembersAreListedWithinTheLimit: with ten kinds each, at the start too, and no kind more often than every ten
// minutes. Meanwhile every member's cache is looked at within a minute.
func TestAThousandMembersAreListedWithinTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const members, kinds = 1000, 10
		s := newSchedule(members, kinds)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		<-time.After(time.Hour)
		cancel()
		running.Wait()

		perSecond := map[int]int{}
		for _, at := range s.lists {
			perSecond[int(at.Seconds())]++
		}
		for second, n := range perSecond {
			if limit := 20; n > limit+1 { // a second may begin and end with one
				t.Errorf("%d lists in second %d, want %d at most", n, second, limit)
			}
		}
		if len(s.last) != members*kinds {
			t.Errorf("%d kinds of members were listed, want %d", len(s.last), members*kinds)
		}
		for _, pause := range s.pauses {
			if pause < 10*time.Minute-time.Second || pause > 15*time.Minute {
				t.Fatalf("a kind of a member was listed again after %s, want 10 to 15 minutes", pause)
			}
		}
		for name, looks := range s.looks {
			for i, at := range looks {
				if i > 0 && at-looks[i-1] > time.Minute || i == 0 && at > time.Minute {
					t.Fatalf("the cache of %s was not looked at for more than a minute before %s", name, at)
				}
			}
		}
		if len(s.looks) != members {
			t.Errorf("%d caches were looked at, want %d", len(s.looks), members)
		}
	})
}

// TestARoundLeavesOutClustersWithNothingDue: they would wait behind those that wait for the limit, and what is due a moment later with them.
// A member that is connected anew is listed at once.
func TestARoundLeavesOutClustersWithNothingDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 2)
		var engagement *fleet.Engagement
		s.engagement = func(mcreconcile.ClusterName) *fleet.Engagement { return engagement }
		s.visit = func(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, remote.Session) error) error {
			return do(ctx, remote.Session{ID: mcowner.ClusterID{Name: name}, Engagement: engagement})
		}
		by := s.byLists()
		sweep := func(when string, want bool) {
			t.Helper()
			now := s.round(by)
			if got := len(now) == 1; got != want {
				t.Errorf("%s: swept is %t, want %t", when, got, want)
			}
			for _, c := range now {
				s.begin(t.Context(), by, c)
			}
		}
		sweep("at first", true)
		sweep("after it", false)
		engagement = new(fleet.Engagement)
		sweep("connected anew", true)
		sweep("after that", false)
		s.kinds = append(s.kinds, remote.Kind{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Kind2"}})
		sweep("with one more kind", true)
		<-time.After(s.Listing - time.Second)
		sweep("before it is due", false)
		<-time.After(s.Listing/10 + 2*time.Second)
		sweep("when it is due", true)
	})
}

// TestAProofDoesNotWaitBehindLists: it waits for the next moment that the limit allows, also while 10,000 lists are due.
func TestAProofDoesNotWaitBehindLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1000, 10)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		for range 10 {
			<-time.After(20 * time.Second)
			before := time.Now()
			if err := s.limit.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(before); waited > 200*time.Millisecond {
				t.Errorf("a proof has waited for %s", waited)
			}
			looks := len(s.looksAt("member-999"))
			s.Look("member-999")
			<-time.After(gatherLooks)
			synctest.Wait()
			if len(s.looksAt("member-999")) == looks {
				t.Error("a cluster that was to be looked at soon waits behind the lists")
			}
		}
		cancel()
		running.Wait()
	})
}

// TestLooksAreGathered: a hundred owners that go one after the other ask for as many looks at a cluster.
func TestLooksAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(2, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		<-time.After(time.Second)
		other, before := len(s.looksAt("member-1")), len(s.looksAt("member-0"))
		for range 100 {
			s.Look("member-0")
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if n := len(s.looksAt("member-0")) - before; n == 0 || n > 3 {
			t.Errorf("there were %d looks within a second, want 3 at most", n)
		}
		if n := len(s.looksAt("member-1")) - other; n > 0 {
			t.Errorf("there were %d looks that nobody has asked for", n)
		}
		cancel()
		running.Wait()
	})
}

// TestLooksThatAreAskedForAgainAndAgainBecomeRare: a stranger who writes references to owners that are not there asks for one by each,
// and each reads all that the cache has. Other clusters are looked at as soon as before, and so is that one after a while.
func TestLooksThatAreAskedForAgainAndAgainBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(2, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		looksIn := func(name mcreconcile.ClusterName, span time.Duration) int {
			synctest.Wait()
			before := len(s.looksAt(string(name)))
			<-time.After(span)
			synctest.Wait()
			return len(s.looksAt(string(name))) - before
		}
		<-time.After(time.Second)
		asking, stop := context.WithCancel(ctx)
		running.Go(func() {
			for asking.Err() == nil {
				s.Look("member-0")
				<-time.After(10 * time.Millisecond)
			}
		})
		if n := looksIn("member-0", 9*time.Minute); n > 45 { // a dozen of them would be there anyway
			t.Errorf("there were %d looks in nine minutes, want 45 at most", n)
		}
		s.Look("member-1")
		if looksIn("member-1", 2*gatherLooks) == 0 {
			t.Error("a cluster waits for another one that is looked at again and again")
		}
		stop()
		<-time.After(2 * quietPauses * mostBetweenLooks)
		s.Look("member-0")
		if looksIn("member-0", 2*gatherLooks) == 0 {
			t.Error("a cluster that was left alone is looked at late")
		}
		cancel()
		running.Wait()
	})
}

func (s *schedule) looksAt(name string) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks[name]
}

// TestAListThatBreaksOffSaysNothingOfHowManyAreUnproven: the metric would fall for the time being.
func TestAListThatBreaksOffSaysNothingOfHowManyAreUnproven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 1)
		unreadable := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcowner.KeyPrefix + "hash": "{"}}}
		seen, broken := 2, error(nil)
		s.list = func(_ context.Context, _ remote.Session, _ remote.Kind, do func(client.Object) error) error {
			for range seen {
				if err := do(unreadable); err != nil {
					return err
				}
			}
			return broken
		}
		by := s.byLists()
		c := s.memory("member-0")
		for _, step := range []struct {
			seen   int
			broken error
			want   int
		}{{2, nil, 2}, {1, errors.New("no answer"), 2}, {1, nil, 1}} {
			seen, broken = step.seen, step.broken
			clear(c.due)
			s.sweep(t.Context(), c, by)
			if got := c.tallies[s.kinds[0].GroupVersionKind].unproven; got != step.want {
				t.Errorf("after a list of %d with the error %v, %d dependents are unproven, want %d", step.seen, step.broken, got, step.want)
			}
		}
	})
}

// TestKindsThatAreNotSweptAnyMoreAreForgotten: whoever may edit an owner may note others time and again.
func TestKindsThatAreNotSweptAnyMoreAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 1)
		by := s.byLists()
		c := s.memory("member-0")
		for round := range 3 {
			s.kinds[0].Kind = fmt.Sprint("Another", round)
			s.sweep(t.Context(), c, by)
			<-time.After(2 * s.Listing)
		}
		if len(c.due) != 1 {
			t.Errorf("%d kinds are known, of which one is swept", len(c.due))
		}
	})
}

// TestAMemberThatGivesNoAnswerHoldsAWorkerForOneTimeout in each round, whether lists or removals get none. All kinds have their turn.
func TestAMemberThatGivesNoAnswerHoldsAWorkerForOneTimeout(t *testing.T) {
	t.Parallel()
	for name, silence := range map[string]error{
		"Lists": fmt.Errorf("no answer: %w", context.DeadlineExceeded), "Removals": errHung,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const kinds = 10
				s := newSchedule(1, kinds)
				tried := map[string]int{}
				s.list = func(_ context.Context, _ remote.Session, k remote.Kind, _ func(client.Object) error) error {
					tried[k.Kind]++
					<-time.After(10 * time.Second)
					return silence
				}
				by := s.byLists()
				c := s.memory("member-0")
				for round := range 2 * kinds {
					before := time.Now()
					s.sweep(t.Context(), c, by)
					if took := time.Since(before); took != 10*time.Second {
						t.Fatalf("round %d took %s, want one timeout", round, took)
					}
				}
				for kind, n := range tried {
					if n != 2 {
						t.Errorf("%s was tried %d times in %d rounds, want 2", kind, n, 2*kinds)
					}
				}
				if len(tried) != kinds {
					t.Errorf("%d kinds were tried, want %d", len(tried), kinds)
				}
			})
		})
	}
}

// TestOtherKindsHaveTheirTurn after one another, also where the first of them give no answers. Each sweep looks at those that it is to look at always.
func TestOtherKindsHaveTheirTurn(t *testing.T) {
	t.Parallel()
	others := make([]schema.GroupVersionKind, 10)
	for n := range others {
		others[n] = schema.GroupVersionKind{Version: "v1", Kind: fmt.Sprint("Other", n)}
	}
	for name, tc := range map[string]struct {
		silent func(other int) bool
		sweeps int // until each has had its turn
	}{
		"all answer":   {func(int) bool { return false }, 4},
		"half answers": {func(other int) bool { return other%2 == 1 }, 5},
		"one answers":  {func(other int) bool { return other != 5 }, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(1, 2)
				s.MoreKinds = func(last schema.GroupVersionKind) (always, inTurn []schema.GroupVersionKind) {
					next := 1 + slices.Index(others, last)
					return []schema.GroupVersionKind{{Version: "v1", Kind: "Watched"}}, slices.Concat(others[next:], others[:next])[:3]
				}
				tried := map[string]int{}
				s.list = func(_ context.Context, _ remote.Session, k remote.Kind, _ func(client.Object) error) error {
					tried[k.Kind]++
					if n := slices.Index(others, k.GroupVersionKind); n >= 0 && tc.silent(n) {
						return fmt.Errorf("no answer: %w", context.DeadlineExceeded)
					}
					return nil
				}
				by := s.byLists()
				for range tc.sweeps {
					for _, c := range s.round(by) {
						s.begin(t.Context(), by, c)
					}
					<-time.After(2 * s.Listing)
				}
				for _, kind := range []string{"Kind0", "Kind1", "Watched"} {
					if tried[kind] != tc.sweeps {
						t.Errorf("%s was tried in %d sweeps of %d", kind, tried[kind], tc.sweeps)
					}
				}
				if len(tried) != 3+len(others) {
					t.Errorf("of %d others, there were tried %v", len(others), tried)
				}
			})
		})
	}
}

// TestAKindThatGivesNoAnswerHoldsUpNoOther of its member: each round looks at all the others.
func TestAKindThatGivesNoAnswerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 5)
		tried := map[string]int{}
		s.list = func(_ context.Context, _ remote.Session, k remote.Kind, _ func(client.Object) error) error {
			if tried[k.Kind]++; k.Kind == "Kind2" {
				return context.DeadlineExceeded
			}
			return nil
		}
		by := s.byLists()
		c := s.memory("member-0")
		const rounds = 4
		for range rounds {
			s.sweep(t.Context(), c, by)
			clear(c.due)
		}
		for kind, n := range tried {
			if n < rounds-1 { // the first round ends with the kind that gives no answer
				t.Errorf("%s was listed %d times in %d rounds", kind, n, rounds)
			}
		}
	})
}

// TestMembersWhosePagesAreSlowHoldUpNoOther, however many pages there are, how few dependents on each, and how many of them were looked at before.
func TestMembersWhosePagesAreSlowHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		slow int
		at   string // where lists go on
	}{
		"all are looked at": {slow: mostOpen},
		"most are left out": {slow: remote.AtOnce, at: "default/made-up-1990"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { areSlow(t, tc.slow, tc.at) })
		})
	}
}

func areSlow(t *testing.T, slow int, goesOn string) {
	t.Helper()
	s := newSchedule(slow+1, 1)
	kinds, last := s.kinds, fmt.Sprint("member-", slow)
	for n := range slow {
		begin := map[schema.GroupVersionKind]begun{kinds[0].GroupVersionKind: {at: goesOn, since: time.Now()}}
		s.memory(mcreconcile.ClusterName(fmt.Sprint("member-", n))).listed.begun = begin
	}
	of := knownSweeper(&refusing{})
	s.Fleet, s.OwnersIn, s.access, s.proof = of.Fleet, mcowner.Clusters{Local: true}, of.access, of.proof
	s.DryRun, s.Watched, s.Listing, s.kinds = true, nil, 0, kinds
	s.list = func(ctx context.Context, at remote.Session, _ remote.Kind, do func(client.Object) error) error {
		if string(at.Name()) == last {
			s.noteList(last)
			return nil
		}
		for n := range 2000 {
			if err := s.limit.waitToList(ctx); err != nil {
				return err
			}
			<-time.After(9 * time.Second)
			if err := do(dependent(t, at.Name(), fmt.Sprintf("made-up-%04d", n), "owner", 1, "another")); err != nil {
				return err
			}
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	<-time.After(time.Hour)
	cancel()
	running.Wait()
	if n := len(s.lists); n < 6 {
		t.Errorf("the member that is quick was listed %d times in an hour: %s", n, s.lists)
	}
}

// TestMembersOfManySlowKindsHoldUpNoOther, although there is nothing of any. All of their kinds are listed as well.
func TestMembersOfManySlowKindsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow, kinds = mostOpen, 60
		s := newSchedule(slow+1, kinds)
		s.Watched, s.Listing = nil, 0
		quick, lists := fmt.Sprint("member-", slow), 0
		s.list = func(ctx context.Context, at remote.Session, k remote.Kind, _ func(client.Object) error) error {
			if err := s.limit.waitToList(ctx); err != nil {
				return err
			}
			if string(at.Name()) != quick {
				<-time.After(9 * time.Second)
			}
			s.noteList(string(at.Name()) + "/" + k.Kind)
			if string(at.Name()) == quick && k.Kind == "Kind0" {
				s.mu.Lock()
				defer s.mu.Unlock()
				lists++
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		<-time.After(time.Hour)
		cancel()
		running.Wait()
		if lists < 15 {
			t.Errorf("a kind of the member that is quick was listed %d times in an hour", lists)
		}
		if n := len(s.last); n != (slow+1)*kinds {
			t.Errorf("%d kinds of members were listed in an hour, want %d", n, (slow+1)*kinds)
		}
	})
}

// TestASweepThatEndsForOthersGoesOnWithTheKindsThatItLeftOut, and does not count as one that has listed them. One that ends with kinds in turn has
// listed all that each sweep has.
func TestASweepThatEndsForOthersGoesOnWithTheKindsThatItLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 4)
		others := madeUp{{Version: "v1", Kind: "Other0"}, {Version: "v1", Kind: "Other1"}}
		s.MoreKinds = func(last schema.GroupVersionKind) (_, inTurn []schema.GroupVersionKind) {
			next := 1 + slices.Index(others, last)
			return nil, slices.Concat(others[next:], others[:next])
		}
		var listed []string
		s.list = func(_ context.Context, _ remote.Session, k remote.Kind, _ func(client.Object) error) error {
			listed = append(listed, k.Kind)
			<-time.After(s.Interval / 2)
			return nil
		}
		by, c := s.byLists(), s.memory("member-0")
		by.places.wanted.Store(true)
		for i, want := range []struct {
			kinds  []string
			result string
		}{
			{[]string{"Kind0", "Kind1"}, "error"},
			{[]string{"Kind2", "Kind3"}, "error"},
			{[]string{"Other0"}, "success"},
			{[]string{"Other1"}, "success"},
			{nil, "success"},
		} {
			listed = nil
			s.metrics = newSweepMetrics("test")
			s.sweep(t.Context(), c, by)
			if !slices.Equal(listed, want.kinds) {
				t.Errorf("sweep %d has listed %s, want %s", i, listed, want.kinds)
			}
			if !s.metrics.sweeps.DeleteLabelValues("member-0", want.result) {
				t.Errorf("sweep %d does not count as %s", i, want.result)
			}
		}
	})
}

// TestAListThatIsForbiddenIsAskedForAsRarelyAsOthers: in a thousand members it would use up the limit.
func TestAListThatIsForbiddenIsAskedForAsRarelyAsOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 2)
		tried := map[string]int{}
		s.list = func(_ context.Context, _ remote.Session, k remote.Kind, _ func(client.Object) error) error {
			tried[k.Kind]++
			if k.Kind == "Kind0" {
				return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			}
			return apierrors.NewServiceUnavailable("it is tried again soon")
		}
		by := s.byLists()
		const sweeps = 3
		for range sweeps {
			s.sweep(t.Context(), s.memory("member-0"), by)
			<-time.After(s.Interval)
		}
		if tried["Kind0"] != 1 || tried["Kind1"] != sweeps {
			t.Errorf("the lists were asked for %v times", tried)
		}
		<-time.After(2 * s.Listing)
		if s.sweep(t.Context(), s.memory("member-0"), by); tried["Kind0"] != 2 {
			t.Error("the right may have been given since, and the list is not asked for again")
		}
	})
}

// TestWhatHungIsLeftOutUntilItsKindWasLookedAtToItsEnd, whatever ends sweeps meanwhile, and no longer than that: else either the others
// of the kind, or those that hung, would never have their turn beside a kind that gives no answer.
func TestWhatHungIsLeftOutUntilItsKindWasLookedAtToItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 3)
		answers := map[string]error{"Kind1": context.DeadlineExceeded}
		s.list = func(_ context.Context, _ remote.Session, k remote.Kind, _ func(client.Object) error) error {
			return answers[k.Kind]
		}
		by := s.byLists()
		c := s.memory("member-0")
		c.listed.noteHung(s.kinds[0].GroupVersionKind, "1")
		isLeftOut := func() bool { return c.listed.hung[s.kinds[0].GroupVersionKind]["1"] }
		for _, answers["Kind0"] = range []error{errHung, errHung, context.DeadlineExceeded, context.DeadlineExceeded} {
			if s.sweep(t.Context(), c, by); !isLeftOut() {
				t.Fatalf("it is not left out after the answer %v", answers["Kind0"])
			}
		}
		delete(answers, "Kind0")
		for range 2 {
			clear(c.due)
			s.sweep(t.Context(), c, by)
		}
		if isLeftOut() {
			t.Error("it is left out although its kind was looked at to its end")
		}
	})
}

// TestWhatHungHasItsTurnBesideANamespaceThatMayNotBeListed: where that is so, no look at the kind ends without an error.
func TestWhatHungHasItsTurnBesideANamespaceThatMayNotBeListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
		s := newSchedule(1, 1)
		var answer error
		s.list = func(context.Context, remote.Session, remote.Kind, func(client.Object) error) error { return answer }
		by := s.byLists()
		c, kind := s.memory("member-0"), s.kinds[0].GroupVersionKind
		c.listed.noteHung(kind, "1")
		for _, answer = range []error{errors.Join(forbidden, errHung), errors.Join(forbidden, context.DeadlineExceeded), errors.Join(forbidden)} {
			if !c.listed.hung[kind]["1"] {
				t.Fatalf("it is not left out before the answer %v", answer)
			}
			clear(c.due)
			s.sweep(t.Context(), c, by)
		}
		if c.listed.hung[kind]["1"] {
			t.Error("it is left out although all was looked at that may be listed")
		}
	})
}

// TestWhatEndsNoBetterIsNotListedAgainSoon: a list without end, one that is forbidden, and one that there is not. Any other error may be over in the
// next round.
func TestWhatEndsNoBetterIsNotListedAgainSoon(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer error
		again  bool
	}{
		"without end": {fmt.Errorf("listing: %w", remote.ErrEndless), false},
		"forbidden":   {apierrors.NewForbidden(schema.GroupResource{}, "", nil), false},
		"not served":  {apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{}, "", "", 0, false), false},
		"not a list":  {apierrors.NewMethodNotSupported(schema.GroupResource{}, "list"), false},
		"broken off":  {errors.New("connection reset"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSchedule(1, 1)
				s.list = func(context.Context, remote.Session, remote.Kind, func(client.Object) error) error { return tc.answer }
				by := s.byLists()
				for _, c := range s.round(by) {
					s.begin(t.Context(), by, c)
				}
				if again := len(s.round(by)) > 0; again != tc.again {
					t.Errorf("it is listed again in the next round: %t, want %t", again, tc.again)
				}
			})
		})
	}
}

// TestKindsThatAreNotSweptAnyMoreAreNotCounted: what was unproven of them is in nobody's way.
func TestKindsThatAreNotSweptAnyMoreAreNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(1, 2)
		s.list = func(_ context.Context, _ remote.Session, _ remote.Kind, do func(client.Object) error) error {
			return do(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mcowner.KeyPrefix + "hash": "{"}}})
		}
		by := s.byLists()
		c := s.memory("member-0")
		s.sweep(t.Context(), c, by)
		s.kinds = s.kinds[:1]
		s.sweep(t.Context(), c, by)
		if _, kept := c.tallies[s.kinds[0].GroupVersionKind]; !kept || len(c.tallies) != 1 {
			t.Errorf("of %d kinds it is counted what was unproven, want the one that is swept", len(c.tallies))
		}
	})
}
