package fleet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type named string

func (n named) String() string { return string(n) }

func TestAnEngagementIsDrainedWhenItsWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngagement(t.Context(), "a")
		_, leave, err := e.Join(t.Context(), named("a reconcile"))
		if err != nil {
			t.Fatal(err)
		}
		e.end(errRemoved)
		if cause := context.Cause(e.Context()); !errors.Is(cause, ErrDisengaged) || !errors.Is(cause, errRemoved) {
			t.Errorf("the cause is %v, want ErrDisengaged and why", cause)
		}
		if _, _, err := e.Join(t.Context(), named("another")); !errors.Is(err, ErrDisengaged) {
			t.Errorf("Join() after the end = %v, want ErrDisengaged", err)
		}
		drained := false
		go func() {
			_ = e.drain(t.Context())
			drained = true
		}()
		synctest.Wait()
		if drained {
			t.Error("drained while work runs")
		}
		leave()
		leave() // harmless
		synctest.Wait()
		if !drained {
			t.Error("not drained although the work has ended")
		}
	})
}

func TestADrainThatTakesTooLongNamesWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngagement(t.Context(), "a")
		for _, what := range []named{"reconcile 1", "reconcile 2", "reconcile 3", "reconcile 4"} {
			_, leave, err := e.Join(t.Context(), what)
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
		}
		e.end(errRemoved)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := e.drain(ctx)
		for _, part := range []string{`cluster "a"`, "reconcile 1", "reconcile 3", "1 more"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("drain() = %v, want an error with %q", err, part)
			}
		}
	})
}

// TestADrainHasNoMorePatienceWithACacheThanWithWork: one that hangs is named too.
func TestADrainHasNoMorePatienceWithACacheThanWithWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngagement(t.Context(), "a")
		stopped := make(chan struct{})
		e.background.Go(func() { <-stopped })
		e.end(errRemoved)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.drain(ctx); err == nil || !strings.Contains(err.Error(), "its cache still runs") {
			t.Errorf("drain() = %v while the cache runs, want an error that says so", err)
		}
		close(stopped)
		if err := e.drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWorkMayEndWhileTheEngagementEnds(t *testing.T) {
	for range 200 {
		e := newEngagement(t.Context(), "a")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					_, leave, err := e.Join(t.Context(), named("work"))
					if err != nil {
						return
					}
					leave()
				}
			})
		}
		all.Go(func() { e.end(errRemoved) })
		all.Wait()
		if err := e.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestADrainWaitsForTheLastWork, also if there was none for a moment before.
func TestADrainWaitsForTheLastWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngagement(t.Context(), "a")
		join := func() (leave func()) {
			_, leave, err := e.Join(t.Context(), named("a reconcile"))
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		join()() // before the engagement ends
		first, last := join(), join()
		e.end(errRemoved)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_ = e.drain(t.Context())
		}()
		synctest.Wait()
		if isClosed(drained) {
			t.Error("it is drained while two run")
		}
		first()
		synctest.Wait()
		if isClosed(drained) {
			t.Error("it is drained while one runs")
		}
		last()
		<-drained
	})
}
