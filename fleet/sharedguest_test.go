package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// sharedGuests runs a fleet of members that are all another replica's, and one cluster.
func sharedGuests(t *testing.T, members int) (*Fleet, *shares) {
	t.Helper()
	cp := pool.Share(t, mctest.Options{})
	s := newShares()
	f := running(t, Options{Ownership: s})
	for n := range members {
		mustSet(t, f, Member{Name: ClusterName(fmt.Sprintf("m%d", n)), Config: cp.Config()})
	}
	return f, s
}

func mustShare(t *testing.T, f *Fleet, name ClusterName) (*Guest, func()) {
	t.Helper()
	g, leave, err := f.SharedGuest(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return g, leave
}

func (f *Fleet) keptGuests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.guests)
}

// TestThoseWhoVisitAMemberShareOneConnection, which stays for a while, and ends when the member is this replica's.
func TestThoseWhoVisitAMemberShareOneConnection(t *testing.T) {
	t.Parallel()
	f, s := sharedGuests(t, 1)
	first, leave := mustShare(t, f, "m0")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			g, leave, err := f.SharedGuest(t.Context(), "m0")
			if err != nil || g != first {
				t.Errorf("another guest came: %v", err)
				return
			}
			defer leave()
			if _, err := namespaces(t.Context(), g); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	leave()
	again, leave := mustShare(t, f, "m0")
	if again != first {
		t.Error("the guest did not stay for a while")
	}
	leave()
	s.giveUntold("m0", me)
	f.ownershipChanged()
	<-first.Context().Done()
	if why := context.Cause(first.Context()); !errors.Is(why, ErrDisengaged) || !errors.Is(why, errOwnedHere) {
		t.Errorf("the guest ended since %v", why)
	}
	mustBecome(func() bool { return f.keptGuests() == 0 })
}

// TestGuestsThatNobodyUsesEnd after a while, and at once if there are many.
func TestGuestsThatNobodyUsesEnd(t *testing.T) {
	f, _ := sharedGuests(t, mostIdleGuests+3)
	before := goleak.IgnoreCurrent()
	used, leave := mustShare(t, f, "m0")
	for n := 1; n < mostIdleGuests+3; n++ {
		_, leave := mustShare(t, f, ClusterName(fmt.Sprintf("m%d", n)))
		leave()
	}
	mustBecome(func() bool { return f.keptGuests() == mostIdleGuests+1 })
	if used.Context().Err() != nil {
		t.Error("a guest that is used has ended")
	}
	leave()
	f.mu.Lock()
	kept := maps.Clone(f.guests)
	f.mu.Unlock()
	for name, s := range kept {
		f.endGuest(name, s) // as the timer does
	}
	mustBecome(func() bool { return f.keptGuests() == 0 })
	mustBecome(func() bool { return goleak.Find(before) == nil })
}

// TestAGuestThatComesTooLateEnds: nobody has waited for it for as long as one is kept.
func TestAGuestThatComesTooLateEnds(t *testing.T) {
	t.Parallel()
	f := running(t, Options{Ownership: newShares(), ConnectTimeout: time.Minute})
	cfg := rest.CopyConfig(pool.Share(t, mctest.Options{}).Config())
	dialed, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(dialed) })
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		first()
		<-goOn
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	mustSet(t, f, Member{Name: "a", Config: cfg})
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		<-dialed
		giveUp()
	}()
	if _, _, err := f.SharedGuest(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v, want that the caller has given up", err)
	}
	f.mu.Lock()
	late := f.guests["a"]
	f.mu.Unlock()
	f.endGuest("a", late) // as the timer does
	close(goOn)
	<-late.connected
	if late.err != nil {
		t.Fatal(late.err)
	}
	<-late.guest.Context().Done()
}

// TestAGuestThatCannotComeIsTriedAnew by whoever asks next.
func TestAGuestThatCannotComeIsTriedAnew(t *testing.T) {
	t.Parallel()
	f := running(t, Options{Ownership: newShares(), ConnectTimeout: 3 * time.Second})
	mustSet(t, f, Member{Name: "a", Config: &rest.Config{Host: mctest.Silent(t)}})
	if _, _, err := f.SharedGuest(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error is %v", err)
	}
	mustSet(t, f, Member{Name: "a", Config: pool.Share(t, mctest.Options{}).Config(), Revision: "2"})
	_, leave := mustShare(t, f, "a")
	leave()
	if _, _, err := f.SharedGuest(t.Context(), "unknown"); !errors.Is(err, ErrUnknown) {
		t.Errorf("the error is %v, want ErrUnknown", err)
	}
}

// TestAGuestComesAtOnceToAMemberThatIsBack, although one could not come while the member was being removed.
func TestAGuestComesAtOnceToAMemberThatIsBack(t *testing.T) {
	t.Parallel()
	f, _ := sharedGuests(t, 1)
	withdraw := func(is bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.members["m0"].withdrawn = is
	}
	withdraw(true)
	if _, _, err := f.SharedGuest(t.Context(), "m0"); !errors.Is(err, ErrNotOwned) {
		t.Fatalf("the error is %v", err)
	}
	withdraw(false)
	_, leave := mustShare(t, f, "m0")
	leave()
}

// TestItIsKnownWhichClusterWasVisited until it may be another one, of which nobody tells this replica.
func TestItIsKnownWhichClusterWasVisited(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	otherwise := Member{Name: "m0", Config: rest.CopyConfig(cp.Config())}
	otherwise.Config.UserAgent = "other"
	end := func(why error) func(*Fleet, *shares, *Guest) {
		return func(_ *Fleet, _ *shares, g *Guest) { g.cancel(why) }
	}
	for name, tc := range map[string]struct {
		then  func(*Fleet, *shares, *Guest)
		known bool
	}{
		"Visited":        {func(*Fleet, *shares, *Guest) {}, true},
		"Left":           {end(errIdle), true},
		"AnotherCluster": {end(ErrAnotherCluster), false},
		"OtherFiles":     {end(errReplaced), false},
		"OtherLabels": {func(f *Fleet, _ *shares, g *Guest) {
			g.cancel(errIdle)
			mustSet(t, f, Member{Name: "m0", Config: cp.Config(), Labels: map[string]string{"new": "label"}})
		}, true},
		"DescribedOtherwise": {func(f *Fleet, _ *shares, g *Guest) {
			g.cancel(errIdle)
			mustSet(t, f, otherwise)
		}, false},
		"CannotBeRenewed": {func(f *Fleet, _ *shares, _ *Guest) { mustSet(t, f, otherwise) }, false},
		"Renewed": {func(f *Fleet, _ *shares, g *Guest) {
			before := g.config.Load()
			mustSet(t, f, Member{Name: "m0", Config: cp.AddUser(t, "visited-anew", mayAsk)})
			mustBecome(func() bool { return g.config.Load() != before })
			g.cancel(errIdle)
		}, true},
		"VisitedBesideAPrivateGuest": {func(f *Fleet, _ *shares, g *Guest) {
			end := mustGuest(t, f, "m0")
			end()
			mustBecome(func() bool { return guestsOf(f, "m0") == 1 })
			before := g.config.Load()
			mustSet(t, f, Member{Name: "m0", Config: cp.AddUser(t, "visited-beside", mayAsk)})
			mustBecome(func() bool { return g.config.Load() != before })
		}, true},
		"Gone": {func(f *Fleet, _ *shares, _ *Guest) {
			<-f.remove("m0")
			mustSet(t, f, Member{Name: "m0", Config: cp.Config()})
		}, false},
		"GivenBack": {func(f *Fleet, s *shares, _ *Guest) {
			s.giveUntold("m0", me)
			f.ownershipChanged()
			mustBecome(func() bool { _, err := f.Engagement("m0"); return err == nil })
			mustGuest(t, f, "m0")()
			s.giveUntold("m0", "other")
			f.ownershipChanged()
			mustBecome(func() bool { now, _ := f.Status("m0"); return now.State == NotOwned })
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s := sharedGuests(t, 1)
			if _, known := f.GuestIdentity("m0"); known {
				t.Error("it is known before the first visit")
			}
			g, leave := mustShare(t, f, "m0")
			defer leave()
			tc.then(f, s, g)
			mustBecome(func() bool { return guestsOf(f, "m0") == 0 || strings.HasPrefix(name, "Visited") })
			if identity, known := f.GuestIdentity("m0"); known != tc.known || known != (identity == g.Identity()) {
				t.Errorf("it is known that %q was visited: %t", identity, known)
			}
		})
	}
}

// mustGuest connects a guest of a caller's own.
func mustGuest(t *testing.T, f *Fleet, name ClusterName) (end context.CancelFunc) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	if _, err := f.Guest(ctx, name); err != nil {
		t.Fatal(err)
	}
	return end
}

func guestsOf(f *Fleet, name ClusterName) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.members[name].guests)
}
