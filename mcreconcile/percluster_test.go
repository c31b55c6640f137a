package mcreconcile

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/internal/life"
)

// member is a cluster that is nothing but itself.
type member struct {
	cluster.Cluster
	_ int // two pointers to something without a size may be equal
}

// instances counts which instance of a reconciler was called how often.
type instances struct {
	Reconciler
	of    []cluster.Cluster
	calls []int
}

func newInstances() *instances {
	all := &instances{}
	all.Reconciler = PerCluster(func(cl cluster.Cluster) reconcile.Reconciler {
		n := len(all.of)
		all.of, all.calls = append(all.of, cl), append(all.calls, 0)
		return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			all.calls[n]++
			return reconcile.Result{}, nil
		})
	})
	return all
}

// reconcile reconciles once, and returns the instance that did.
func (i *instances) reconcile(ctx context.Context, t *testing.T) (instance int) {
	t.Helper()
	before := append([]int{}, i.calls...)
	if _, err := i.Reconcile(ctx, Request{}); err != nil {
		t.Fatal(err)
	}
	for n, calls := range i.calls {
		if n >= len(before) || calls > before[n] {
			return n
		}
	}
	t.Fatal("no instance was called")
	return 0
}

func (i *instances) kept() int { return len(i.Reconciler.(*perCluster).instances) }

var errReplaced = errors.New("replaced")

// engage returns the context of a reconcile of an engagement, each with values of its own as controllers make it, and what
// ends the engagement.
func engage(t *testing.T, cl cluster.Cluster) (reconciles func() context.Context, end func()) {
	t.Helper()
	engagement, cancel := context.WithCancelCause(t.Context())
	return func() context.Context {
		ctx, done := context.WithCancel(t.Context())
		t.Cleanup(done)
		return WithCluster(life.With(ctx, engagement), "north", cl)
	}, func() { cancel(errReplaced); synctest.Wait() }
}

// TestANewEngagementHasANewInstance: also of the same cluster object, and while the old engagement goes on. The end of the
// old one forgets its own instance alone.
func TestANewEngagementHasANewInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, cl := newInstances(), &member{}
		before, end := engage(t, cl)
		after, endAfter := engage(t, cl)
		for n, ctx := range []context.Context{before(), after()} {
			if got := all.reconcile(ctx, t); got != n {
				t.Errorf("instance %d was called for engagement %d", got, n)
			}
		}
		end()
		if got := all.reconcile(after(), t); got != 1 || len(all.of) != 2 {
			t.Errorf("instance %d of %d was called, want the second of two", got, len(all.of))
		}
		endAfter()
		if all.kept() > 0 {
			t.Errorf("%d instances are kept of engagements that have ended", all.kept())
		}
	})
}

// TestAnEngagementThatHasEndedGetsNoOtherInstance: a reconcile of it may still run.
func TestAnEngagementThatHasEndedGetsNoOtherInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newInstances()
		reconciles, end := engage(t, &member{})
		ctx := reconciles()
		all.reconcile(ctx, t)
		end()
		if _, err := all.Reconcile(ctx, Request{}); !errors.Is(err, errReplaced) {
			t.Errorf("the error is %v, want the cause of the end", err)
		}
		if len(all.of) != 1 || all.kept() > 0 {
			t.Errorf("%d instances were made and %d are kept, want one and none", len(all.of), all.kept())
		}
	})
}

// TestAnotherClusterInAReconcileHasAnInstanceOfItsOwn, that ends with the reconcile's engagement.
func TestAnotherClusterInAReconcileHasAnInstanceOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := newInstances()
		reconciles, end := engage(t, &member{})
		ctx := reconciles()
		other := WithCluster(ctx, "south", &member{})
		if a, b, again := all.reconcile(ctx, t), all.reconcile(other, t), all.reconcile(ctx, t); a == b || a != again {
			t.Errorf("instances %d, %d, %d were called, want another for the other cluster", a, b, again)
		}
		end()
		if all.kept() > 0 {
			t.Errorf("%d instances are kept", all.kept())
		}
	})
}

// TestWithoutAnEngagementTheContextIsTheLife: reconciles that add values to one context share an instance.
func TestWithoutAnEngagementTheContextIsTheLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		all, cl := newInstances(), &member{}
		controller, stop := context.WithCancel(t.Context())
		for n := range 3 {
			if got := all.reconcile(WithCluster(context.WithValue(controller, key{}, n), "north", cl), t); got != 0 {
				t.Errorf("reconcile %d called instance %d", n, got)
			}
		}
		stop()
		synctest.Wait()
		if all.kept() > 0 {
			t.Errorf("%d instances are kept", all.kept())
		}
	})
}

func TestAContextWithoutAClusterSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, ctx := range map[string]context.Context{"None": t.Context(), "Nil": WithCluster(t.Context(), "north", nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := ClusterNameFrom(ctx); ok || got != "" {
				t.Errorf("ClusterNameFrom() = %q, %t", got, ok)
			}
			_, err := newInstances().Reconcile(ctx, Request{})
			if err == nil || !errors.Is(err, reconcile.TerminalError(nil)) || !strings.Contains(err.Error(), "mcreconcile.WithCluster") {
				t.Errorf("the error of PerCluster is %v", err)
			}
			defer func() {
				said, _ := recover().(string)
				for _, cure := range []string{"mcbuilder", "mcreconcile.WithCluster", "ClusterNameFrom"} {
					if !strings.Contains(said, cure) {
						t.Errorf("ClusterFrom panics with %q, which does not name %s", said, cure)
					}
				}
			}()
			ClusterFrom(ctx)
			t.Error("ClusterFrom returned")
		})
	}
}
