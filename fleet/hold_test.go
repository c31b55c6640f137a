package fleet

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// holds are those of a test.
type holds struct {
	fleet *Fleet
	mu    sync.Mutex // guards of
	of    map[ClusterName]Hold
}

func (h *holds) get(name ClusterName) Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[name]
}

func (h *holds) set(name ClusterName, hold Hold) {
	h.mu.Lock()
	h.of[name] = hold
	h.mu.Unlock()
	h.fleet.HoldChanged(name)
	synctest.Wait()
}

// held runs a fleet with the member "a" whose holds the test sets.
func held(t *testing.T, opts Options, first Hold) (*Fleet, *holds) {
	t.Helper()
	h := &holds{of: map[ClusterName]Hold{"a": first}}
	f := New(opts)
	h.fleet = f
	f.HoldBy(h.get)
	t.Cleanup(runs(t, f))
	set(t, f, Member{Name: "a", Cluster: &existing{}})
	return f, h
}

func TestNoReconcileOfAPausedMemberBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{})
		e, err := f.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := reconciling(t, f, "a")
		h.set("a", Hold{Paused: true, Reason: "maintenance"})
		if got := wantState(t, f, "a", Ready); !got.Paused || got.Reason != ReasonPaused || got.Message != "maintenance" {
			t.Errorf("a member that is paused: %+v", got)
		}
		if ctx.Err() != nil {
			t.Error("the reconcile that runs was ended")
		}
		end()
		if _, _, _, err := f.Controller("things").Begin(t.Context(), "a", named("a reconcile")); !errors.Is(err, ErrNotReady) {
			t.Errorf("a reconcile begins: %v", err)
		}
		if same, err := f.Engagement("a"); err != nil || same != e {
			t.Errorf("its engagement is another: %v", err)
		}
		h.set("a", Hold{})
		if got := wantState(t, f, "a", Ready); got.Paused || got.Reason != "" {
			t.Errorf("a member that is not paused any more: %+v", got)
		}
		_, end = reconciling(t, f, "a")
		end()
	})
}

func TestADrainedMemberIsDisengagedUntilItIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{})
		for range 2 {
			ctx, end := reconciling(t, f, "a")
			h.set("a", Hold{Drained: true, Reason: "it is being moved"})
			if got := wantState(t, f, "a", Draining); got.Reason != ReasonDrained {
				t.Errorf("while a reconcile runs: %+v", got)
			}
			if !errors.Is(context.Cause(ctx), ErrDisengaged) {
				t.Errorf("the reconcile's context ends for %v", context.Cause(ctx))
			}
			end()
			synctest.Wait()
			if got := wantState(t, f, "a", Drained); got.Message != "it is being moved" || got.Engaged() {
				t.Errorf("drained: %+v", got)
			}
			if _, err := f.Engagement("a"); !errors.Is(err, ErrNotReady) {
				t.Errorf("asking for it: %v, want ErrNotReady", err)
			}
			if _, err := f.Guest(t.Context(), "a"); !errors.Is(err, ErrNotReady) {
				t.Errorf("a guest: %v, want ErrNotReady", err)
			}
			set(t, f, Member{Name: "a", Cluster: &existing{}})
			wantState(t, f, "a", Drained)
			h.set("a", Hold{})
			wantState(t, f, "a", Ready)
		}
	})
}

func TestAMemberThatIsHeldBackFromTheStartIsNeverConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{Drained: true})
		wantState(t, f, "a", Drained)
		h.set("nobody", Hold{Drained: true})
		<-f.remove("a")
		set(t, f, Member{Name: "a", Cluster: &existing{}})
		wantState(t, f, "a", Drained)
		h.set("a", Hold{Paused: true})
		wantState(t, f, "a", Ready)
	})
}

func TestAnAttemptToConnectEndsWithADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, h := held(t, Options{}, Hold{})
		dialed := make(chan struct{}, 100)
		set(t, f, Member{Name: "b", Config: &rest.Config{Host: "http://silent", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialed <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}}})
		if got := wantState(t, f, "b", Connecting); got.Server != "http://silent" {
			t.Errorf("its server is %q", got.Server)
		}
		h.set("b", Hold{Drained: true})
		wantState(t, f, "b", Drained)
		before := len(dialed)
		<-time.After(time.Hour) // of the test's own time
		if len(dialed) != before {
			t.Error("a drained member was dialed")
		}
		h.set("b", Hold{})
		wantState(t, f, "b", Connecting)
	})
}

// TestADrainedMemberStaysThatOfItsReplica: another one would not know when nothing runs for it any more.
func TestADrainedMemberStaysThatOfItsReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares("a")
		f, h := held(t, Options{Ownership: s}, Hold{})
		h.set("a", Hold{Drained: true})
		wantState(t, f, "a", Drained)
		if !s.has("a") {
			t.Error("it is given back")
		}
		s.give("a", "other")
		wantState(t, f, "a", NotOwned)
		if s.has("a") {
			t.Error("it is kept, though another replica is to own it")
		}
		s.give("a", me)
		wantState(t, f, "a", Drained)
		h.set("a", Hold{})
		wantState(t, f, "a", Ready)
		s.give("a", "other")
		h.set("a", Hold{Drained: true})
		wantState(t, f, "a", NotOwned)
		s.give("a", me)
		wantState(t, f, "a", Drained)
		_, end := reconcilingAgain(t, f, h)
		h.set("a", Hold{Drained: true})
		s.give("a", "other")
		end()
		synctest.Wait()
		wantState(t, f, "a", NotOwned)
	})
}

func reconcilingAgain(t *testing.T, f *Fleet, h *holds) (ctx context.Context, end func()) {
	t.Helper()
	h.set("a", Hold{})
	return reconciling(t, f, "a")
}

// TestADrainedMemberLeavesWhenItsTimeIsUp: nobody can take back what is there.
func TestADrainedMemberLeavesWhenItsTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := held(t, Options{LeaveTimeout: time.Minute}, Hold{Drained: true})
		f.Controller("things").OnLeave(undoneLeaver{})
		left, err := f.leave(Member{Name: "a", Cluster: &existing{}})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		<-left
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("it left after %v", took)
		}
	})
}

// undoneLeaver never has done anything.
type undoneLeaver struct{}

// Replay implements Leaver.
func (undoneLeaver) Replay(context.Context, *Engagement) error { return nil }

// AwaitDone implements Leaver.
func (undoneLeaver) AwaitDone(ctx context.Context, _ ClusterName) error {
	<-ctx.Done()
	return ctx.Err()
}

// Undone implements Leaver.
func (undoneLeaver) Undone(ClusterName) (int, []string) { return 1, nil }

func TestAServersAddressIsShownWithoutSecrets(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"https://user:secret@east.example.com:6443/path?token=secret#secret": "https://east.example.com:6443/path",
		"east.example.com":       "east.example.com",
		"https://east.example:x": "",
	} {
		if got := (Member{Config: &rest.Config{Host: host}}).server(); got != want {
			t.Errorf("%s is shown as %q, want %q", host, got, want)
		}
	}
}
