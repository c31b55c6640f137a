package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// controllerOf is the Leaver of a controller in a test. The zero value is done with every member.
type controllerOf struct {
	mu       sync.Mutex // guards what follows
	requests map[ClusterName]int
	news     chan struct{} // closed when requests are others
	replays  []*Engagement
	fails    int           // replays that fail
	tells    chan struct{} // replays wait until it is closed; nil for not
}

// Replay implements Leaver.
func (c *controllerOf) Replay(ctx context.Context, e *Engagement) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tells := c.tells; tells != nil {
		c.mu.Unlock()
		var err error
		select {
		case <-tells:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		c.mu.Lock()
		if err != nil {
			return err
		}
	}
	if c.fails > 0 {
		c.fails--
		return errors.New("not now")
	}
	c.replays = append(c.replays, e)
	return nil
}

// AwaitDone implements Leaver.
func (c *controllerOf) AwaitDone(ctx context.Context, name ClusterName) error {
	for {
		c.mu.Lock()
		n := c.requests[name]
		if c.news == nil {
			c.news = make(chan struct{})
		}
		news := c.news
		c.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Undone implements Leaver.
func (c *controllerOf) Undone(name ClusterName) (requests int, some []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.requests[name]; n > 0 {
		return n, []string{"ns/x"}
	}
	return 0, nil
}

// has gives the controller requests of a member, and waits until nothing happens any more.
func (c *controllerOf) has(name ClusterName, requests int) {
	c.mu.Lock()
	if c.requests == nil {
		c.requests = map[ClusterName]int{}
	}
	c.requests[name] = requests
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
	c.mu.Unlock()
	synctest.Wait()
}

func (c *controllerOf) replayed() []*Engagement {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replays
}

// controls adds a controller to the fleet.
func controls(f *Fleet, name string) *controllerOf {
	c := &controllerOf{}
	f.Controller(name).OnLeave(c)
	return c
}

// leaving reports that a member leaves, and waits until nothing happens any more.
func leavingMember(t *testing.T, f *Fleet, m Member) (left <-chan struct{}) {
	t.Helper()
	left, err := f.leave(m)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return left
}

func is(cl cluster.Cluster) Member { return Member{Name: "a", Cluster: cl} }

func wantLeft(t *testing.T, left <-chan struct{}, want bool, when string) {
	t.Helper()
	synctest.Wait()
	if isClosed(left) != want {
		t.Errorf("%s: it has left: %t, want %t", when, !want, want)
	}
}

func wantNoMember(t *testing.T, f *Fleet) {
	t.Helper()
	synctest.Wait()
	if s, ok := f.Status("a"); ok {
		t.Errorf("it is still a member: %+v", s)
	}
}

func TestAMemberLeavesWhenEveryControllerIsDoneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		one, two := controls(f, "one"), controls(f, "two")
		e := join(t, f, "a")
		one.has("a", 1)
		two.has("a", 1)
		left := leavingMember(t, f, is(e.Cluster()))
		if s := status(t, f, "a"); s.State != Ready || !s.Leaving || !e.leaving.Load() || f.now("a").Engagement != e {
			t.Errorf("while it leaves: %+v, want that it is engaged as before", s)
		}
		for _, c := range []*controllerOf{one, two} {
			if got := c.replayed(); len(got) != 1 || got[0] != e {
				t.Errorf("objects were told again for %v, want for its engagement", got)
			}
		}
		one.has("a", 0)
		wantLeft(t, left, false, "with a request of controller two")
		one.has("a", 2) // what two does is an event for one
		two.has("a", 0)
		wantLeft(t, left, false, "with requests of controller one again")
		one.has("a", 0)
		wantLeft(t, left, true, "without a request")
		if cause := context.Cause(e.Context()); !errors.Is(cause, errLeft) {
			t.Errorf("the engagement ended since %v", cause)
		}
		wantNoMember(t, f)
		wantLeft(t, leavingMember(t, f, is(e.Cluster())), true, "said again")
		wantNoMember(t, f)
		if got := one.replayed(); len(got) != 1 {
			t.Errorf("it was asked %d times, want once", len(got))
		}
		join(t, f, "a")
		if s := status(t, f, "a"); s.Leaving || len(f.departed) > 0 {
			t.Errorf("a member that is set again is %+v, and these have departed: %v", s, f.departed)
		}
	})
}

func TestKindsThatMayNotBeListedAreToldWhenAMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{LeaveTimeout: time.Minute})
		one := controls(f, "one")
		one.has("a", 1)
		e := join(t, f, "a")
		for kind, why := range map[string]error{
			"Secret": apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")), "Widget": &meta.NoKindMatchError{},
		} {
			key := informer.Key{GVK: schema.GroupVersionKind{Version: "v1", Kind: kind}}
			s := e.kinds.stateOf(key)
			e.kinds.update(key, "", func() { s.noteLocked(step{what: listing}, why) })
		}
		left := leavingMember(t, f, is(e.Cluster()))
		<-time.After(30 * time.Second)
		wantProblem(t, f, "Leaving: ", "these kinds may not be listed there: Secret")
		one.has("a", 0)
		wantLeft(t, left, true, "without a request")
		wantProblem(t, f, "LeftUndone: ", "they may not be listed there: Secret")
		<-f.remove("a")
		wantProblem(t, f)
	})
}

func TestAMemberThatIsSetAgainStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{LeaveTimeout: time.Minute})
		one := controls(f, "one")
		controls(f, "two")
		e := join(t, f, "a")
		one.has("a", 1)
		left := leavingMember(t, f, is(e.Cluster()))
		<-time.After(30 * time.Second)
		wantProblem(t, f, "Leaving: it is about to leave, until", "controller one is not done with 1 requests, such as ns/x")
		if p := f.Problems(); strings.Contains(p[0].Message, "controller two") {
			t.Errorf("the problem is %q: controller two is done", p[0].Message)
		}
		set(t, f, is(e.Cluster()))
		wantProblem(t, f)
		if s := status(t, f, "a"); s.Leaving || e.leaving.Load() {
			t.Errorf("it still leaves: %+v", s)
		}
		if got := one.replayed(); len(got) != 2 || got[1] != e {
			t.Errorf("objects were told again for %v, want once more for what was taken back", got)
		}
		one.has("a", 0)
		<-time.After(time.Hour)
		wantLeft(t, left, false, "after it was set again")
		if got, err := f.Engagement("a"); err != nil || got != e {
			t.Errorf("its engagement is %v, %v, want that of before", got, err)
		}
	})
}

func TestSayingAgainThatAMemberLeavesGivesItNoMoreTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{LeaveTimeout: time.Minute})
		controls(f, "one").has("a", 1)
		e := join(t, f, "a")
		left := leavingMember(t, f, is(e.Cluster()))
		<-time.After(40 * time.Second)
		again := is(e.Cluster())
		again.Labels = map[string]string{"news": "yes"}
		if leavingMember(t, f, again) != left {
			t.Error("there are two channels for one leaving")
		}
		again.Labels["news"] = "no" // the caller's map is the caller's
		if s := status(t, f, "a"); s.Labels["news"] != "yes" {
			t.Errorf("news are not taken over: %+v", s)
		}
		<-time.After(20 * time.Second)
		wantLeft(t, left, true, "after a minute")
	})
}

func TestAMemberWhoseTimeIsUpLeavesAndWhatIsUndoneIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines strings.Builder
		log := funcr.New(func(_, line string) { lines.WriteString(line + "\n") }, funcr.Options{})
		f := running(t, Options{LeaveTimeout: time.Minute, Logger: log})
		one := controls(f, "one")
		e := join(t, f, "a")
		one.has("a", 3)
		left := leavingMember(t, f, is(e.Cluster()))
		<-time.After(time.Minute)
		wantLeft(t, left, true, "after a minute")
		wantNoMember(t, f)
		const undone = "controller one is not done with 3 requests, such as ns/x"
		wantProblem(t, f, "LeftUndone: ", undone)
		if !strings.Contains(lines.String(), "its time is up") || !strings.Contains(lines.String(), undone) {
			t.Errorf("the log does not say what is undone:\n%s", lines.String())
		}
		wantLeft(t, leavingMember(t, f, is(e.Cluster())), true, "said again")
		wantProblem(t, f, "LeftUndone: ", undone)
		<-f.remove("a")
		wantProblem(t, f)
	})
}

func TestAMemberThatIsSetAgainWhileItIsDrainedIsANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{LeaveTimeout: time.Minute})
		controls(f, "one").has("a", 1)
		e := join(t, f, "a")
		_, done, err := e.Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		left := leavingMember(t, f, is(e.Cluster()))
		<-time.After(time.Minute)
		wantLeft(t, left, false, "while a reconcile runs that does not heed its context")
		if leavingMember(t, f, is(e.Cluster())) != left {
			t.Error("there are two channels for one leaving")
		}
		set(t, f, is(e.Cluster()))
		done()
		wantLeft(t, left, true, "after that")
		wantProblem(t, f)
		if s := status(t, f, "a"); s.State != Ready || s.Leaving || len(f.departed) > 0 {
			t.Errorf("it is %+v, and these have departed: %v", s, f.departed)
		}
	})
}

func TestAMemberThatLeavesIsRemovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		controls(f, "one").has("a", 1)
		e := join(t, f, "a")
		left := leavingMember(t, f, is(e.Cluster()))
		<-time.After(30 * time.Second)
		<-f.remove("a")
		wantLeft(t, left, true, "after it was removed")
		wantProblem(t, f)
		wantNoMember(t, f)
	})
}

func TestAFleetThatEndsSaysOfNoMemberThatItHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		end := runs(t, f)
		controls(f, "one").has("a", 1)
		e := join(t, f, "a")
		left := leavingMember(t, f, is(e.Cluster()))
		end()
		wantLeft(t, left, false, "after the end")
		if _, err := f.leave(is(e.Cluster())); !errors.Is(err, ErrStopped) {
			t.Errorf("leave() = %v, want ErrStopped", err)
		}
	})
}

func TestAMemberThatIsNotKnownJoinsInOrderToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMembers: 1})
		one := controls(f, "one")
		one.has("a", 1)
		join(t, f, "b")
		left := leavingMember(t, f, is(&existing{})) // there is no room
		if leavingMember(t, f, is(&existing{})) != left {
			t.Error("there are two channels for one leaving")
		}
		<-f.remove("b")
		if s := status(t, f, "a"); !s.Leaving || s.State != Ready || !f.now("a").Engagement.leaving.Load() {
			t.Errorf("it is %+v, want Ready and leaving", s)
		}
		one.has("a", 0)
		wantLeft(t, left, true, "without a request")
		wantNoMember(t, f)
	})
}

func TestAMemberWithoutRoomThatIsRemovedHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{MaxMembers: 1})
		join(t, f, "b")
		left := leavingMember(t, f, is(&existing{}))
		<-f.remove("a")
		wantLeft(t, left, true, "after it was removed")
	})
}

func TestAnotherEngagementOrControllerIsAskedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		one := controls(f, "one")
		first := join(t, f, "a")
		one.has("a", 1)
		one.mu.Lock()
		one.fails = 2 // it is asked again
		one.mu.Unlock()
		left := leavingMember(t, f, is(first.Cluster()))
		if got := one.replayed(); len(got) > 0 {
			t.Error("a controller that cannot tell all is asked again without a pause")
		}
		<-time.After(10 * time.Second)
		leavingMember(t, f, is(&existing{})) // at another address
		second := f.now("a").Engagement
		if got := one.replayed(); len(got) != 2 || got[0] != first || got[1] != second {
			t.Errorf("objects were told again for %v, want for the engagements %p and %p", got, first, second)
		}
		two := controls(f, "two")
		two.has("a", 1)
		one.has("a", 0)
		if got := two.replayed(); len(got) != 1 || got[0] != second {
			t.Errorf("the late controller was told for %v, want for the second engagement", got)
		}
		if got := one.replayed(); len(got) != 2 {
			t.Errorf("the first controller was told %d times, want once for each engagement", len(got))
		}
		wantLeft(t, left, false, "with a request of the late controller")
		two.has("a", 0)
		wantLeft(t, left, true, "without a request")
	})
}

// TestADepartureThatIsOutdatedChangesNothing: something else holds by the time that the controllers are done, or the time is up.
func TestADepartureThatIsOutdatedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		e, one := join(t, f, "a"), controls(f, "one")
		one.has("a", 1)
		leavingMember(t, f, is(e.Cluster()))
		m, leavers := f.members["a"], f.leavers
		now, other := &departure{member: m, leaving: m.leaving}, &departure{member: m, leaving: newLeaving()}
		if now.withdraw(newEngagement(t.Context(), "a"), leavers) || now.withdraw(e, nil) || other.withdraw(e, leavers) {
			t.Error("it has left, although another engagement, controller or leaving is there now")
		}
		other.giveUp()
		other.tellUndoneNow()
		wantProblem(t, f)
		if s := status(t, f, "a"); s.State != Ready {
			t.Errorf("it is %s, although it has begun to leave once more", s.State)
		}
		_, done, err := e.Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		f.remove("a")
		now.giveUp()
		now.tellUndoneNow()
		wantProblem(t, f)
		if now.withdraw(e, leavers) {
			t.Error("it has left after it was removed")
		}
		done()
	})
}

// TestAMemberHasNotLeftBeforeControllersHadEveryObject, although nothing is queued.
func TestAMemberHasNotLeftBeforeControllersHadEveryObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		one := controls(f, "one")
		one.tells = make(chan struct{})
		e := join(t, f, "a")
		left := leavingMember(t, f, is(e.Cluster()))
		wantLeft(t, left, false, "before all was told")
		<-time.After(leavePatience)
		wantProblem(t, f, "Leaving: ", "controller one has not started, or does not have every object yet")
		join(t, f, "a") // it stays
		wantProblem(t, f)
		left = leavingMember(t, f, is(f.now("a").Engagement.Cluster()))
		<-time.After(leavePatience)
		wantLeft(t, left, false, "before all was told")
		close(one.tells)
		wantLeft(t, left, true, "when all was told")
		wantProblem(t, f)
		wantNoMember(t, f)
	})
}

func TestAMemberThatWasNeverConnectedLeavesAtOnceWithoutControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		left := leavingMember(t, f, Member{Name: "a", Err: errors.New("no kubeconfig yet")})
		wantLeft(t, left, true, "without controllers")
		wantNoMember(t, f)
	})
}

// TestFollowersHearThatAMemberLeaves, and that it stays.
func TestFollowersHearThatAMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		controls(f, "one").has("a", 1)
		e := join(t, f, "a")
		ctx, stop := context.WithCancel(t.Context())
		var heard atomic.Bool
		go func() { // ends with ctx
			for change := range f.Changes(ctx) {
				heard.Store(change.Status.Leaving)
			}
		}()
		leavingMember(t, f, is(e.Cluster()))
		if !heard.Load() {
			t.Error("followers do not hear that it leaves")
		}
		set(t, f, is(e.Cluster()))
		if heard.Load() {
			t.Error("followers do not hear that it stays")
		}
		stop()
		synctest.Wait()
	})
}

// TestWhatIsSaidLastOfAMemberThatIsDrainedHolds: it is set again, and is to leave again, before it has left.
func TestWhatIsSaidLastOfAMemberThatIsDrainedHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{LeaveTimeout: time.Minute})
		one := controls(f, "one")
		one.has("a", 1)
		e := join(t, f, "a")
		_, done, err := e.Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		first := leavingMember(t, f, is(e.Cluster()))
		<-time.After(time.Minute)
		wantLeft(t, first, false, "while it is drained")
		set(t, f, is(e.Cluster()))
		again := leavingMember(t, f, is(e.Cluster()))
		if again == first || leavingMember(t, f, is(e.Cluster())) != again {
			t.Error("to leave again is not another leaving, once")
		}
		done()
		wantLeft(t, first, true, "when it is drained")
		wantLeft(t, again, false, "as the next, with a request")
		one.has("a", 0)
		wantLeft(t, again, true, "without a request")
		wantNoMember(t, f)
	})
}

// TestAMemberWhoseEngagementHasEndedLeaves: without controllers at once, and with some when they have had the next engagement.
func TestAMemberWhoseEngagementHasEndedLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		e := join(t, f, "a")
		e.end(errors.New("the cache has stopped"))
		wantLeft(t, leavingMember(t, f, is(e.Cluster())), true, "without controllers")

		one := controls(f, "one")
		e = join(t, f, "a")
		e.end(errors.New("the cache has stopped"))
		left := leavingMember(t, f, is(e.Cluster()))
		if got := one.replayed(); len(got) != 0 {
			t.Errorf("objects of an engagement that has ended were told: %v", got)
		}
		wantLeft(t, left, false, "before there is another engagement")
		leavingMember(t, f, is(&existing{}))
		wantLeft(t, left, true, "with another engagement")
		if got := one.replayed(); len(got) != 1 || got[0] == e {
			t.Errorf("objects were told again for %v, want for the engagement that came after it", got)
		}
	})
}

func TestAMemberThatIsNotConnectedHasTimeToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{LeaveTimeout: time.Minute})
		one := controls(f, "one")
		left := leavingMember(t, f, Member{Name: "a", Err: errors.New("it does not parse")})
		<-time.After(50 * time.Second)
		wantLeft(t, left, false, "after 50 seconds")
		wantProblem(t, f, "Leaving: ", "it is Pending (Invalid)")
		leavingMember(t, f, is(&existing{}))
		wantLeft(t, left, true, "after it was connected")
		wantProblem(t, f)
		if got := one.replayed(); len(got) != 1 {
			t.Errorf("objects were told again %d times, want once", len(got))
		}
		never := leavingMember(t, f, Member{Name: "b", Err: errors.New("it does not parse")})
		<-time.After(time.Minute)
		wantLeft(t, never, true, "after a minute")
	})
}

// elector is the local cluster of a replica that is elected when the channel is closed.
type elector struct {
	cluster.Cluster

	elected chan struct{}
}

// Elected is that of a manager.
func (e elector) Elected() <-chan struct{} { return e.elected }

func TestOnlyTheElectedReplicaLetsMembersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, local := New(Options{LeaveTimeout: time.Minute}), elector{elected: make(chan struct{})}
		given, ended := make(chan Members), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- f.Run(ctx, local, NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members Members) error {
				given <- members
				<-ctx.Done()
				return nil
			}))
		}()
		members := <-given
		one := controls(f, "one")
		left, err := members.Leave(is(&existing{}))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		wantLeft(t, left, false, "on a standby")
		if s := status(t, f, "a"); !s.Leaving || len(one.replayed()) > 0 {
			t.Errorf("on a standby: %+v, and controllers are asked: %d", s, len(one.replayed()))
		}
		one.has("a", 1)
		close(local.elected)
		<-time.After(59 * time.Second)
		wantLeft(t, left, false, "before its minute is over")
		<-time.After(2 * time.Second)
		wantLeft(t, left, true, "after its minute")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAMemberThatIsLetGoBeforeItLeavesComesBackToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		one := controls(f, "one")
		one.has("a", 1)
		_, done, err := join(t, f, "a").Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		drained := f.remove("a")
		left := leavingMember(t, f, is(&existing{})) // another object describes it, and leaves
		done()
		<-drained
		if s := status(t, f, "a"); !s.Leaving || s.State != Ready {
			t.Errorf("it is %+v, want Ready and leaving", s)
		}
		one.has("a", 0)
		wantLeft(t, left, true, "without a request")
	})
}

func TestAMemberThatIsLetGoBeforeItComesBackToLeaveHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		_, done, err := join(t, f, "a").Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		drained := f.remove("a")
		left := leavingMember(t, f, is(&existing{}))
		if leavingMember(t, f, is(&existing{})) != left {
			t.Error("there are two channels for one leaving")
		}
		f.remove("a")
		wantLeft(t, left, true, "after it was removed once more")
		done()
		<-drained
		wantNoMember(t, f)
	})
}

func TestOneMemberThatHangsKeepsNoOtherFromLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		one := controls(f, "one")
		one.has("m7", 1)
		left := make([]<-chan struct{}, 100)
		for i := range left {
			left[i] = leavingMember(t, f, Member{Name: ClusterName(fmt.Sprintf("m%d", i)), Cluster: &existing{}})
		}
		for i := range left {
			wantLeft(t, left[i], i != 7, fmt.Sprintf("member %d", i))
		}
	})
}

// wantProblem fails the test unless there is one problem that begins with the first part and has the others, or none.
func wantProblem(t *testing.T, f *Fleet, parts ...string) {
	t.Helper()
	synctest.Wait()
	problems := f.Problems()
	if len(problems) == 0 && len(parts) == 0 {
		return
	}
	if len(problems) != 1 || len(parts) == 0 {
		t.Errorf("the problems are %+v, want one with %q", problems, parts)
		return
	}
	text := problems[0].Reason + ": " + problems[0].Message
	for i, part := range parts {
		if !strings.Contains(text, part) || i == 0 && !strings.HasPrefix(text, part) {
			t.Errorf("the problem is %q, want %q in it", text, part)
		}
	}
}
