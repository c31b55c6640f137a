package fleet

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// shares is an Ownership in which the test says which replica works on what. This one is "me".
type shares struct {
	mu       sync.Mutex
	owners   map[ClusterName]string
	labelled map[ClusterName]string // whose it is with labels
	held     map[ClusterName]*tenure
	released []ClusterName
	forgot   []ClusterName
	proved   time.Duration
	changed  func()
	fails    chan error
	spent    func(time.Duration) // of each owner
}

const me = "me"

var errMoved = errors.New("another replica is to work on it")

func newShares(mine ...ClusterName) *shares {
	s := &shares{owners: map[ClusterName]string{}, labelled: map[ClusterName]string{}, held: map[ClusterName]*tenure{}, proved: time.Hour, fails: make(chan error)}
	for _, name := range mine {
		s.owners[name] = me
	}
	return s
}

// Run implements Ownership.
func (s *shares) Run(ctx context.Context, _ cluster.Cluster, changed func()) error {
	s.mu.Lock()
	s.changed = changed
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.fails:
		return err
	}
}

// Own implements Ownership.
func (s *shares) Own(name ClusterName, labels map[string]string) Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.ownerLocked(name, labels)
	if owner != me {
		return Owner{Replica: owner}
	}
	t := s.held[name]
	switch {
	case t == nil:
		t = &tenure{of: s, name: name}
		s.held[name] = t
	case t.over != nil:
		panic("a tenure is asked for before the last was released: " + name)
	}
	t.labels = labels
	return Owner{Replica: owner, Tenure: t, Spent: s.spent}
}

func (s *shares) ownerLocked(name ClusterName, labels map[string]string) string {
	if len(labels) > 0 && s.labelled[name] != "" {
		return s.labelled[name]
	}
	return s.owners[name]
}

// Forget implements Ownership.
func (s *shares) Forget(name ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot = append(s.forgot, name)
}

// give lets a replica work on a member from now on.
func (s *shares) give(name ClusterName, to string) {
	s.giveUntold(name, to)
	s.changed()
	synctest.Wait()
}

// giveUntold is give, of which the fleet does not hear yet.
func (s *shares) giveUntold(name ClusterName, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[name] = to
	if t := s.held[name]; t != nil && to != me {
		t.over = errMoved
	}
}

// prove says for how long this replica can prove that it owns anything.
func (s *shares) prove(d time.Duration) {
	s.proveUntold(d)
	s.changed()
	synctest.Wait()
}

func (s *shares) proveUntold(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proved = d
}

func (s *shares) has(name ClusterName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[name] != nil
}

type tenure struct {
	of     *shares
	name   ClusterName
	over   error
	labels map[string]string // for which it was asked last
}

// Epoch implements Tenure.
func (t *tenure) Epoch() int64 { return 7 }

// Remaining implements Tenure.
func (t *tenure) Remaining() time.Duration {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.over != nil {
		return 0
	}
	return t.of.proved
}

// Over implements Tenure.
func (t *tenure) Over() error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	return t.over
}

// Covers implements Tenure.
func (t *tenure) Covers(labels map[string]string) bool {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	return t.of.ownerLocked(t.name, labels) == me
}

// Release implements Tenure.
func (t *tenure) Release() {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.of.held[t.name] != t {
		panic("a tenure is released that is not held: " + t.name)
	}
	delete(t.of.held, t.name)
	t.of.released = append(t.of.released, t.name)
}

// shared runs a fleet in which this replica owns some members, of "a" and "b", which there are.
func shared(t *testing.T, mine ...ClusterName) (*Fleet, *shares) {
	t.Helper()
	s := newShares(mine...)
	f := running(t, Options{Ownership: s})
	for _, name := range []ClusterName{"a", "b"} {
		set(t, f, Member{Name: name, Cluster: &existing{}})
	}
	return f, s
}

func wantState(t *testing.T, f *Fleet, name ClusterName, want State) Status {
	t.Helper()
	s := status(t, f, name)
	if s.State != want {
		t.Errorf("%s is %s (%s: %s), want %s", name, s.State, s.Reason, s.Message, want)
	}
	return s
}

// reconciling begins a reconcile of a member.
func reconciling(t *testing.T, f *Fleet, name ClusterName) (ctx context.Context, end func()) {
	t.Helper()
	ctx, _, done, err := f.Controller("things").Begin(t.Context(), name, named("a reconcile"))
	if err != nil {
		t.Fatal(err)
	}
	return ctx, func() { done(reconcile.Result{}, nil) }
}

func TestMembersOfOthersAreNotConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		if got := wantState(t, f, "a", Ready); got.Owner != me || got.Epoch != 7 {
			t.Errorf("its owner is %q in epoch %d", got.Owner, got.Epoch)
		}
		if got := wantState(t, f, "b", NotOwned); got.Owner != "" || got.Message != "no replica works on it now" {
			t.Errorf("a member of nobody: %+v", got)
		}
		s.give("b", "other")
		got := wantState(t, f, "b", NotOwned)
		if got.Owner != "other" || got.Message != "replica other works on it" || got.Engaged() || f.now("b").Engagement != nil {
			t.Errorf("a member of another replica: %+v", got)
		}
		_, err := f.Engagement("b")
		if !errors.Is(err, ErrNotOwned) || errors.Is(err, ErrNotReady) {
			t.Errorf("asking for it: %v, want ErrNotOwned", err)
		}
		set(t, f, Member{Name: "b", Cluster: &existing{}})
		set(t, f, Member{Name: "b", Err: errors.New("it does not parse")})
		wantState(t, f, "b", NotOwned)
		<-f.remove("b")
		if !slices.Contains(s.forgot, "b") || len(s.released) > 0 {
			t.Errorf("removed: forgotten are %v, released %v", s.forgot, s.released)
		}
	})
}

func TestAMemberIsGivenBackWhenItsLastReconcileHasReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		ctx, end := reconciling(t, f, "a")
		s.give("a", "other")
		if got := wantState(t, f, "a", Draining); got.Reason != ReasonHandedOver {
			t.Errorf("the reason is %q", got.Reason)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, ErrDisengaged) || !errors.Is(cause, errMoved) {
			t.Errorf("the reconcile's context ends for %v, want ErrDisengaged and why", cause)
		}
		if _, err := f.Engagement("a"); !errors.Is(err, ErrNotOwned) {
			t.Errorf("asking for it: %v", err)
		}
		if !s.has("a") {
			t.Error("it is given back while a reconcile runs")
		}
		end()
		wantState(t, f, "a", NotOwned)
		if s.has("a") {
			t.Error("it is not given back")
		}
		if f.members["a"].engagement != nil {
			t.Error("its caches are kept")
		}
	})
}

// TestTheSeriesOfAMemberGoWithIt: its owner has them.
func TestTheSeriesOfAMemberGoWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares("a")
		f := running(t, Options{Ownership: s, MaxMemberSeries: 1})
		for _, name := range []ClusterName{"a", "b"} {
			set(t, f, Member{Name: name, Cluster: &existing{}})
		}
		for range 2 {
			if got := seriesOf(t, "cluster=a"); got["member_engagements_total{cluster=a}"] != "1" {
				t.Errorf("the series of an owned member: %v", got)
			}
			s.give("a", "other")
			if got := seriesOf(t, "cluster="); len(got) > 0 {
				t.Errorf("series of members of others: %v", got)
			}
			if got := seriesOf(t, "state=NotOwned"); got["members{state=NotOwned}"] != "2" {
				t.Errorf("members by state: %v", got)
			}
			s.give("a", me)
		}
	})
}

// TestAMemberThatCannotBeConnectedIsGivenBackAtOnce: the attempt that is under way ends.
func TestAMemberThatCannotBeConnectedIsGivenBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares("a")
		f := running(t, Options{Ownership: s})
		set(t, f, Member{Name: "a", Config: &rest.Config{Host: "http://silent", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}})
		wantState(t, f, "a", Connecting)
		s.give("a", "other")
		wantState(t, f, "a", NotOwned)
	})
}

func TestAMemberIsTakenAgainThatStaysAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		for range 3 {
			_, end := reconciling(t, f, "a")
			s.give("a", "other")
			s.give("a", me) // it is not known to the others yet
			wantState(t, f, "a", Draining)
			end()
			wantState(t, f, "a", Ready)
		}
	})
}

func TestAMemberThatGoesToAnotherReplicaMayBeRemovedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		_, end := reconciling(t, f, "a")
		s.give("a", "other")
		drained := f.remove("a")
		synctest.Wait()
		if isClosed(drained) {
			t.Error("it is removed while a reconcile runs")
		}
		for _, left := range []time.Duration{0, time.Hour} {
			s.prove(left)
			wantState(t, f, "a", Draining)
		}
		end()
		<-drained
		if _, ok := f.Status("a"); ok || s.has("a") {
			t.Error("it is a member still, or owned")
		}
	})
}

func TestMembersAreSuspendedWhileOwnershipIsNotProved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		e, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		source, leave, err := e.Join(t.Context(), named("a source"))
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		for range 2 {
			ctx, end := reconciling(t, f, "a")
			s.prove(0)
			if got := wantState(t, f, "a", Suspended); got.Reason != ReasonUnproved || !got.Engaged() {
				t.Errorf("it is %+v", got)
			}
			if !errors.Is(context.Cause(ctx), ErrNotReady) {
				t.Errorf("the reconcile's context: %v, want ErrNotReady", context.Cause(ctx))
			}
			end()
			if _, err := f.Engagement("a"); !errors.Is(err, ErrNotReady) {
				t.Errorf("asking for it: %v, want ErrNotReady", err)
			}
			if _, _, _, err := f.Controller("things").Begin(t.Context(), "a", named("another")); !errors.Is(err, ErrNotReady) {
				t.Errorf("a reconcile that begins: %v, want ErrNotReady", err)
			}
			s.prove(time.Hour)
			wantState(t, f, "a", Ready)
		}
		if now, err := f.Engagement("a"); err != nil || now != e || source.Err() != nil {
			t.Errorf("it was connected anew (%v), or its sources have ended (%v)", err, source.Err())
		}
	})
}

// TestAMemberThatJoinsWhileSuspendedIsSuspended: it is engaged, and nothing is reconciled.
func TestAMemberThatJoinsWhileSuspendedIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a", "c")
		s.prove(-1)
		set(t, f, Member{Name: "c", Cluster: &existing{}})
		wantState(t, f, "c", Suspended)
		s.prove(time.Hour)
		wantState(t, f, "c", Ready)
		_, end := reconciling(t, f, "c")
		end()
	})
}

func TestAMemberThatBecomesUnreachableWhileSuspendedIsThatAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		e, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		s.prove(0)
		f.members["a"].health(e, Unreachable, errors.New("no answer"))
		wantState(t, f, "a", Suspended)
		s.prove(time.Hour)
		wantState(t, f, "a", Unreachable)
		f.members["a"].health(e, Ready, nil)
		_, end := reconciling(t, f, "a")
		end()
	})
}

func TestAMemberWhoseLabelsMakeItAnothersIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		s.labelled["a"], s.labelled["b"] = "other", me
		labels := map[string]string{"pool": "large"}
		for _, name := range []ClusterName{"a", "b"} {
			set(t, f, Member{Name: name, Cluster: &existing{}, Labels: labels})
		}
		if got := wantState(t, f, "a", NotOwned); got.Owner != "other" {
			t.Errorf("the owner is %q", got.Owner)
		}
		wantState(t, f, "b", Ready)
	})
}

func TestTheEndGivesBackAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares("a", localName)
		f := New(Options{Ownership: s})
		end := runs(t, f)
		set(t, f, Member{Name: "a", Cluster: &existing{}})
		set(t, f, Member{Name: "b", Cluster: &existing{}})
		end()
		slices.Sort(s.released)
		if want := []ClusterName{localName, "a"}; !slices.Equal(s.released, want) || len(s.held) > 0 {
			t.Errorf("released are %q, want %q; still held: %v", s.released, want, s.held)
		}
	})
}

// TestAReplicaThatEndsTakesNothing: what is drained meanwhile goes to others.
func TestAReplicaThatEndsTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares("a")
		f := New(Options{Ownership: s})
		end := runs(t, f)
		for _, name := range []ClusterName{"a", "b"} {
			set(t, f, Member{Name: name, Cluster: &existing{}})
		}
		f.mu.Lock()
		f.stopped = true // the first that the end does; members hear of it one by one
		f.mu.Unlock()
		s.give("b", me)
		if s.has("b") {
			t.Error("it takes a member while it ends")
		}
		end()
	})
}

// TestAMemberThatLeavesStaysWithItsOwner: without a controller too, one that is another's is let go by that alone.
func TestAMemberThatLeavesStaysWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ended := newShares(), make(chan error)
		f := New(Options{Ownership: s})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- f.Run(ctx, elector{elected: make(chan struct{})}, nil) }() // it is never the leader
		synctest.Wait()
		left := leavingMember(t, f, is(&existing{}))
		<-time.After(time.Hour)
		wantLeft(t, left, false, "while another replica owns it")
		s.give("a", me)
		wantLeft(t, left, true, "when this one does")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAReplicaThatCannotShareStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ended := newShares("a"), make(chan error)
		f := New(Options{Ownership: s})
		go func() { ended <- f.Run(t.Context(), nil, nil) }()
		why := errors.New("the table is of another version")
		s.fails <- why
		if err := <-ended; !errors.Is(err, why) {
			t.Errorf("the fleet ends with %v", err)
		}
	})
}

// TestTheLocalClusterHasAnOwnerToo: requests of it are one replica's, and no member is called like it.
func TestTheLocalClusterHasAnOwnerToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t)
		if _, _, _, err := f.Controller("things").Begin(t.Context(), localName, named("a reconcile")); !errors.Is(err, ErrNotOwned) {
			t.Errorf("a reconcile of another replica's: %v, want ErrNotOwned", err)
		}
		var states []State
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for change := range f.Controller("things").Changes(ctx) {
				if change.Status.Name == localName && change.Status.State != Pending && change.Status.State != Connecting {
					states = append(states, change.Status.State)
				}
			}
		}()
		members := 0
		go func() {
			for change := range f.Changes(ctx) {
				members++
				if change.Status.Name == localName {
					t.Error("others are told of it as of a member")
				}
			}
		}()
		synctest.Wait()
		s.give(localName, me)
		reconcile, end := reconciling(t, f, localName)
		synctest.Wait()
		s.give(localName, "other")
		synctest.Wait()
		if reconcile.Err() == nil {
			t.Error("the reconcile goes on")
		}
		end()
		synctest.Wait()
		states = slices.Compact(states) // a change of what is told already may be told again
		if want := []State{NotOwned, Ready, Draining, NotOwned}; !slices.Equal(states, want) {
			t.Errorf("its states were %v, want %v", states, want)
		}
		if len(f.List(nil)) != 2 || members == 0 {
			t.Errorf("members are %v, and %d changes were told", f.List(nil), members)
		}
	})
}

// TestAMemberThatLeavesIsAskedAboutByItsOwnerAlone, and by the next one when it goes to that.
func TestAMemberThatLeavesIsAskedAboutByItsOwnerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t)
		one := controls(f, "one")
		left := leavingMember(t, f, is(&existing{}))
		<-time.After(time.Hour)
		wantLeft(t, left, false, "while another replica owns it")
		if n := len(one.replayed()); n > 0 {
			t.Errorf("controllers are asked %d times", n)
		}
		one.has("a", 1)
		s.give("a", me)
		wantLeft(t, left, false, "while a request is not done")
		s.give("a", "other")
		one.has("a", 0)
		<-time.After(time.Hour)
		wantLeft(t, left, false, "when it has gone to another replica")
		s.give("a", me)
		wantLeft(t, left, true, "when its owner is done")
		if n := len(one.replayed()); n != 2 {
			t.Errorf("objects were told again %d times, want once each time that it is owned", n)
		}
	})
}

func TestTheOwnershipHearsOfLabelsOfMembersThatStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, same := newShares("a"), &existing{}
		f := running(t, Options{Ownership: s})
		set(t, f, Member{Name: "a", Cluster: same})
		held := s.held["a"]
		labels := map[string]string{"weight": "7"}
		set(t, f, Member{Name: "a", Cluster: same, Labels: labels})
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held["a"] != held || held.labels["weight"] != "7" {
			t.Errorf("the tenure is %v with labels %v, want the same one, which was asked for with the new labels", s.held["a"], s.held["a"].labels)
		}
	})
}

// TestAMemberOfAnotherReplicaIsNotDrainedAsItGoes: whoever writes down what this replica is doing would write down that.
func TestAMemberOfAnotherReplicaIsNotDrainedAsItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := shared(t, "a")
		s.give("b", "other")
		f.mu.Lock()
		f.members["b"].withdrawLocked()
		got := f.members["b"].statusLocked()
		f.mu.Unlock()
		if got.State != NotOwned || got.Owner != "other" {
			t.Errorf("it is %s, of %q", got.State, got.Owner)
		}
		synctest.Wait()
		if _, known := f.Status("b"); known {
			t.Error("it is still there")
		}
	})
}
