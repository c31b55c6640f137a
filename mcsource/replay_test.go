package mcsource_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// WaitForSync implements source.TypedSyncingSource. It returns when synced is closed, or at once without it.
func (s *started) WaitForSync(ctx context.Context) error {
	if s.synced == nil {
		return s.unsynced
	}
	select {
	case <-s.synced:
		return s.unsynced
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// replay tells all of the member "a" once more. The channel has what comes of it.
func (s *sources) replay(ctx context.Context) (done <-chan error) {
	s.t.Helper()
	e, err := s.fleet.Engagement("a")
	if err != nil {
		s.t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- s.source.(mcsource.Replayer).Replay(ctx, e) }()
	synctest.Wait()
	return result
}

func wantOngoing(t *testing.T, done <-chan error, when string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("%s it has ended with %v", when, err)
	default:
	}
}

func TestASourceIsReplacedWhenTheSecondHasToldAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.set("a", &existing{}, "prod")
		s.is(1, 1)
		synced := make(chan struct{})
		s.will(func() { s.next.synced = synced })
		done := s.replay(t.Context())
		<-time.After(time.Minute)
		wantOngoing(t, done, "before all was told,")
		s.is(2, 2)
		close(synced)
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.is(2, 1)
		if s.started[1].ctx.Err() != nil {
			t.Error("the second source has ended, and not the first")
		}
		s.set("a", &existing{}, "prod") // engaged anew
		s.is(3, 1)
		if err := <-s.replay(t.Context()); err != nil {
			t.Error(err)
		}
		s.is(4, 1)
		if drained := s.remove("a"); !isClosed(drained) {
			t.Error("the member is not drained")
		}
		s.is(4, 0)
	})
}

func TestASourceGoesOnWhereTheSecondDoesNotTellAll(t *testing.T) {
	t.Parallel()
	ways := map[string]func(s *sources, cancel func()){
		"the caller gives up":     func(_ *sources, cancel func()) { cancel() },
		"the controller ends":     func(s *sources, _ func()) { s.stop() },
		"the engagement is over":  func(s *sources, _ func()) { s.set("a", &existing{}, "prod") },
		"the labels do not match": func(s *sources, cancel func()) { s.set("a", s.started[0].cluster, "test"); cancel() },
	}
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := follow(t, labels.SelectorFromSet(labels.Set{"stage": "prod"}))
				s.set("a", &existing{}, "prod")
				first := s.started[0]
				s.will(func() { s.next.synced = make(chan struct{}) })
				e, err := s.fleet.Engagement("a")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer context.AfterFunc(e.Context(), func() { cancel(context.Cause(e.Context())) })()
				done := s.replay(ctx)
				end(s, func() { cancel(errors.New("enough")) })
				if err := <-done; err == nil {
					t.Error("there is no error")
				}
				synctest.Wait()
				if s.started[1].ctx.Err() == nil {
					t.Error("the second source goes on")
				}
				if over := first.ctx.Err() != nil; over != (name != "the caller gives up") {
					t.Errorf("the first source has ended: %t", over)
				}
			})
		})
	}
}

func TestASourceThatIsNotToRunAnyMoreIsNotReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.SelectorFromSet(labels.Set{"stage": "prod"}))
		s.set("a", &existing{}, "prod")
		synced := make(chan struct{})
		s.will(func() { s.next.synced = synced })
		done := s.replay(t.Context())
		s.set("a", s.started[0].cluster, "test")
		s.is(2, 1)
		close(synced)
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.is(2, 0)
	})
}

// TestASecondSourceThatDoesNotSyncIsAnError: not all was told.
func TestASecondSourceThatDoesNotSyncIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.set("a", &existing{}, "prod")
		broken := errors.New("it cannot be listed")
		s.will(func() { s.next.unsynced = broken })
		if err := <-s.replay(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Replay() = %v", err)
		}
		s.is(2, 1)
		s.will(func() { s.hang = map[mcreconcile.ClusterName]chan struct{}{"a": make(chan struct{})} })
		ctx, cancel := context.WithCancel(t.Context())
		done := s.replay(ctx)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("while the second source is being made, Replay() = %v", err)
		}
		close(s.hang["a"])
		s.is(3, 1)
	})
}

// TestTheSecondSourceIsAsTheFirst: it ends when the labels of its member do not match any more, also if that was before all is told.
func TestTheSecondSourceIsAsTheFirst(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := follow(t, labels.SelectorFromSet(labels.Set{"stage": "prod"}))
			cl := &existing{}
			s.set("a", cl, "prod")
			synced := make(chan struct{})
			s.will(func() { s.next.synced = synced })
			done := s.replay(t.Context())
			if late {
				close(synced)
				if err := <-done; err != nil {
					t.Error(err)
				}
				s.is(2, 1)
			}
			s.set("a", cl, "test")
			if !late {
				close(synced)
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			s.is(2, 0)
			s.will(func() { s.next.synced = nil })
			s.set("a", cl, "prod")
			s.is(3, 1)
		})
	}
}

func TestOfAnEngagementThatIsOverNothingIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.set("a", &existing{}, "prod")
		before, err := s.fleet.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		s.set("a", &existing{}, "prod")
		if err := s.source.(mcsource.Replayer).Replay(t.Context(), before); !errors.Is(err, fleet.ErrDisengaged) {
			t.Errorf("Replay() = %v", err)
		}
		s.is(2, 1)
	})
}

func TestWhereASourceDoesNotRunNothingIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.SelectorFromSet(labels.Set{"stage": "prod"}))
		s.set("a", &existing{}, "test")
		if err := <-s.replay(t.Context()); err != nil {
			t.Error(err)
		}
		s.is(0, 0)
	})
}

func TestASourceThatHasNotStartedIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, nil)
		s.set("a", &existing{}, "prod")
		s.source = mcsource.Fleet(s.fleet.Fleet, mcsource.Func(s.forCluster), nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := s.replay(ctx)
		wantOngoing(t, done, "before the start")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Replay() = %v", err)
		}
	})
}

func TestWhatIsWatchedOnDemandIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.Nothing())
		s.set("a", &existing{}, "prod")
		e, err := s.fleet.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		demand := mcsource.NewOnDemand(s.fleet.Fleet)
		ctx := mcreconcile.WithCluster(e.Context(), "a", e.Cluster())
		if err := demand.Watch(ctx, "one", mcsource.Func(s.forCluster)); err != nil {
			t.Fatal(err)
		}
		s.source = demand
		if err := <-s.replay(t.Context()); err != nil {
			t.Error(err)
		}
		s.is(0, 0) // nothing was told yet that could be told again
		if err := demand.Start(s.controller, s.queue); err != nil {
			t.Fatal(err)
		}
		s.is(1, 1)
		if err := <-s.replay(t.Context()); err != nil {
			t.Error(err)
		}
		s.is(2, 1)
		if s.started[1].ctx.Err() != nil {
			t.Error("the second source has ended, and not the first")
		}
		broken := errors.New("it cannot be listed")
		s.will(func() { s.next.unsynced = broken })
		if err := <-s.replay(t.Context()); !errors.Is(err, broken) {
			t.Errorf("Replay() = %v", err)
		}
		s.is(3, 1)
		s.will(func() { s.next.unsynced = nil })
		synced := make(chan struct{})
		s.will(func() { s.next.synced = synced })
		done := s.replay(t.Context())
		demand.Unwatch(ctx, "one")
		close(synced)
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.is(4, 0)
		if _, ok := s.fleet.Status(fleet.ClusterName("a")); !ok {
			t.Error("the member has gone")
		}
	})
}

// TestAMemberThatLeavesWaitsForWatchesThatBeginThen: the reconcile that asks is not done before their objects were told.
func TestAMemberThatLeavesWaitsForWatchesThatBeginThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.Nothing())
		s.set("a", &existing{}, "prod")
		e, err := s.fleet.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		demand := mcsource.NewOnDemand(s.fleet.Fleet)
		if err := demand.Start(s.controller, s.queue); err != nil {
			t.Fatal(err)
		}
		stays := mcreconcile.WithCluster(e.Context(), "a", e.Cluster())
		leaves := mcreconcile.WithLeaving(stays)
		watch := func(ctx context.Context, name string, want error) {
			t.Helper()
			synctest.Wait()
			if err := demand.Watch(ctx, name, mcsource.Func(s.forCluster)); !errors.Is(err, want) {
				t.Errorf("Watch(%q) = %v, want %v", name, err, want)
			}
		}
		synced := make(chan struct{})
		s.will(func() { s.next.synced = synced })
		watch(stays, "before", nil)
		watch(leaves, "before", nil) // Replay tells of that one
		for range 2 {
			watch(leaves, "then", mcsource.ErrNotTold)
		}
		watch(stays, "then", nil) // it stays after all
		close(synced)
		watch(leaves, "then", nil)
		s.will(func() { s.next.synced = make(chan struct{}) })
		watch(leaves, "given up", mcsource.ErrNotTold)
		demand.Unwatch(leaves, "given up")
	})
}

// TestAllThatIsWatchedOnDemandInOneMemberIsToldAgain: two watches, and nothing of another member.
func TestAllThatIsWatchedOnDemandInOneMemberIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.Nothing())
		demand := mcsource.NewOnDemand(s.fleet.Fleet)
		if err := demand.Start(s.controller, s.queue); err != nil {
			t.Fatal(err)
		}
		for _, name := range []fleet.ClusterName{"a", "b"} {
			s.set(name, &existing{}, "prod")
			e, err := s.fleet.Engagement(name)
			if err != nil {
				t.Fatal(err)
			}
			ctx := mcreconcile.WithCluster(e.Context(), name, e.Cluster())
			for _, watch := range []string{"one", "two"} {
				if err := demand.Watch(ctx, watch, mcsource.Func(s.forCluster)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.is(4, 4)
		s.source = demand
		if err := <-s.replay(t.Context()); err != nil {
			t.Error(err)
		}
		s.is(6, 4)
		for _, again := range s.started[4:] {
			if again.name != "a" || again.ctx.Err() != nil {
				t.Errorf("a source of %q was started again, and has ended: %t", again.name, again.ctx.Err() != nil)
			}
		}
	})
}

func TestTheStatusOfAMemberIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, labels.Nothing())
		s.set("a", &existing{}, "prod")
		told := map[fleet.ClusterName]int{}
		s.source = mcsource.Clusters(s.fleet.Fleet, func(_ context.Context, status fleet.Status) []mcreconcile.Request {
			told[status.Name]++
			return []mcreconcile.Request{{ClusterName: status.Name}}
		})
		ctx, cancel := context.WithCancel(t.Context())
		early := s.replay(ctx)
		cancel()
		if err := <-early; !errors.Is(err, context.Canceled) {
			t.Errorf("before the start, Replay() = %v", err)
		}
		if err := s.source.Start(s.controller, s.queue); err != nil {
			t.Fatal(err)
		}
		if err := <-s.replay(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if told["a"] != 2 || len(told) != 1 {
			t.Errorf("members were told %v times, want a twice", told)
		}
		if req, _ := s.queue.Get(); req.ClusterName != "a" {
			t.Errorf("%v is queued, want what was asked for", req)
		}
	})
}
