package mcbuilder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/late"
	"github.com/fleet-runtime/fleet-runtime/internal/life"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// reconciling returns what mcbuilder makes of a user's reconciler.
func (a *attending) reconciling(inner mcreconcile.Func) *reconciler[mcreconcile.Request] {
	return &reconciler[mcreconcile.Request]{inner: inner, mgr: managing{fleet: a.fleet.Fleet}, controller: "c", part: a.fleet.Controller("c"), waiting: a.waiting}
}

// ready returns what a request waits for that needs clusters.
func ready(names ...fleet.ClusterName) (needs []need) {
	for _, name := range names {
		needs = append(needs, need{cluster: name})
	}
	return needs
}

// failing is a reconciler whose only answer is an error.
func failing(err error) mcreconcile.Func {
	return func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{Priority: new(7)}, err
	}
}

// missing is what the fleet says of a cluster that cannot be used.
func missing(why error, name fleet.ClusterName) error {
	return fmt.Errorf("reading: %w", &fleet.StateError{Err: why, Status: fleet.Status{Name: name}})
}

// errorsCounted returns how many reconciles of controller "c" the metrics count as errors.
func errorsCounted(t *testing.T) (n float64) {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "fleet_runtime_member_reconciles_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range series.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["controller"] == "c" && labels["result"] == "error" {
				n += series.GetCounter().GetValue()
			}
		}
	}
	return n
}

// It is not parallel: one fleet of a process has metrics.
func TestAPanicOfAReconcilerCountsAsAnError(t *testing.T) { //nolint:paralleltest // see above
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		r := a.reconciling(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { panic("oh") })
		func() {
			defer func() { _ = recover() }()
			_, _ = r.Reconcile(t.Context(), request("a", "x"))
		}()
		if n := errorsCounted(t); n != 1 {
			t.Errorf("%v errors are counted, want one", n)
		}
		if drained := a.remove("a"); !isClosed(drained) {
			t.Error("the reconcile that panicked still holds its member")
		}
	})
}

// TestARequestIsTriedAgainWhenThatMayHelp: soon if nobody else would queue it, and not at all if something will.
func TestARequestIsTriedAgainWhenThatMayHelp(t *testing.T) {
	t.Parallel()
	conflict := errors.New("conflict")
	cases := map[string]struct {
		err      error
		from, to time.Duration // when it is tried again
		own      error         // the error that remains
		waits    []need
	}{
		"AnErrorOfItsOwn":          {err: conflict, own: conflict},
		"ItsOwnCluster":            {err: missing(fleet.ErrNotReady, "a"), from: soon, to: soon},
		"ItsOwnAndAnother":         {err: errors.Join(missing(fleet.ErrNotReady, "a"), missing(fleet.ErrUnknown, "b")), from: soon, to: soon},
		"AnotherCluster":           {err: missing(fleet.ErrNotReady, "pending"), waits: ready("pending")},
		"AClusterThatIsUnknown":    {err: missing(fleet.ErrUnknown, "b"), waits: ready("b")},
		"AClusterThatIsReadyNow":   {err: missing(fleet.ErrNotReady, "ready"), from: soon, to: soon, waits: ready("ready")},
		"AClusterThatIsGone":       {err: missing(fleet.ErrGone, "b")},
		"AnotherReplicasCluster":   {err: missing(fleet.ErrNotOwned, "b"), own: fleet.ErrNotOwned},
		"ItselfAnotherReplicas":    {err: missing(fleet.ErrNotOwned, "a")},
		"AKind":                    {err: unsynced{}, from: later, to: later + later/5},
		"AKindThatWorksNow":        {err: unsyncedIn{"a"}, from: soon, to: soon, waits: []need{{"a", secrets}}},
		"AKindOfAClusterThatLeft":  {err: unsyncedIn{"left"}, from: soon, to: soon, waits: []need{{"left", secrets}}},
		"AKindAndAnotherCluster":   {err: errors.Join(unsynced{}, missing(fleet.ErrUnknown, "b")), from: later, to: later + later/5, waits: ready("b")},
		"AClusterThatLeftMeantime": {err: missing(fleet.ErrNotReady, "left"), from: soon, to: soon, waits: ready("left")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := attend(t)
				for _, member := range []fleet.ClusterName{"a", "ready", "left"} {
					a.ready(member)
				}
				a.set(fleet.Member{Name: "pending", Err: errors.New("no kubeconfig yet")})
				<-a.remove("left")
				result, err := a.reconciling(failing(tc.err)).Reconcile(t.Context(), request("a", "x"))
				if !errors.Is(err, tc.own) {
					t.Errorf("the error is %v, want %v", err, tc.own)
				}
				if result.RequeueAfter < tc.from || result.RequeueAfter > tc.to {
					t.Errorf("it is tried again after %s, want %s to %s", result.RequeueAfter, tc.from, tc.to)
				}
				if result.RequeueAfter > 0 && (result.Priority == nil || *result.Priority != 7) {
					t.Error("the priority is lost")
				}
				if diff := cmp.Diff(tc.waits, a.waiting.needs[request("a", "x")], cmp.AllowUnexported(need{})); diff != "" {
					t.Errorf("the clusters for which it waits (-want, +got):\n%s", diff)
				}
			})
		})
	}
}

// TestARequestThatNeedsAKindIsTriedMoreAndMoreRarely where a source goes on asking for it, up to once a minute: the status tells when it is
// synced. Once it is, or the request was reconciled, it begins anew.
func TestARequestThatNeedsAKindIsTriedMoreAndMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		r := a.reconciling(failing(nil))
		x := request("a", "x")
		mustPause := func(why error, pauses ...time.Duration) {
			t.Helper()
			var what complaint
			what.add(why)
			for i, least := range pauses {
				a.waiting.forget(x)
				pause := r.pause(x, what)
				a.waiting.add(x, what.missing)
				a.waiting.settle(x)
				if pause < least || pause > min(least*6/5, latest) {
					t.Errorf("attempt %d is followed by another after %s, want %s and up to a fifth more", i+1, pause, least)
				}
			}
		}
		tried := triedIn{unsyncedIn{"b"}}
		mustPause(tried, later, 2*later, 4*later, 8*later, latest*5/6, latest*5/6)
		mustPause(errors.Join(tried, unsynced{}), later, later) // nobody goes on asking for the other one
		if _, err := r.Reconcile(t.Context(), x); err != nil || len(a.waiting.pauses) > 0 || a.waiting.some.Load() {
			t.Errorf("%v, and pauses are kept of a request that was reconciled: %v", err, a.waiting.pauses)
		}
		mustPause(tried, later, 2*later)
		a.waiting.queue(fleet.Status{Name: "b", State: fleet.Ready}, a.queue)
		mustPause(tried, later, 2*later)
		a.waiting.purge("a")
		if len(a.waiting.pauses) > 0 || a.waiting.some.Load() {
			t.Errorf("pauses are kept of a member that has left: %v", a.waiting.pauses)
		}
		mustPause(tried, later)
	})
}

// TestARequestOfAClusterThatIsNotReportedYetWaitsForIt after a start. One of a cluster that was removed, or is named once all should be
// reported, does not wait.
func TestARequestOfAClusterThatIsNotReportedYetWaitsForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("left")
		<-a.remove("left")
		done := 0
		r := a.reconciling(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
			done++
			return reconcile.Result{}, nil
		})
		r.start(t.Context(), a.queue)
		for name, want := range map[fleet.ClusterName]reconcile.Result{"left": {}, "late": {RequeueAfter: late.Most}, "never": {RequeueAfter: late.Most}} {
			if got, err := r.Reconcile(t.Context(), request(name, "x")); err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
			}
		}
		local := a.reconciling(failing(missing(fleet.ErrGone, "left")))
		local.start(t.Context(), a.queue)
		if got, err := local.Reconcile(t.Context(), request(mcreconcile.LocalCluster, "x")); err != nil || got != (reconcile.Result{}) {
			t.Errorf("of the local cluster, about one that was removed: %+v, %v", got, err)
		}
		a.set(fleet.Member{Name: "late", Err: errors.New("no kubeconfig yet")})
		if n := a.queue.Len(); n != 0 {
			t.Errorf("%d are queued of a member that is Pending", n)
		}
		a.ready("late")
		if n := a.queue.Len(); n != 1 {
			t.Fatalf("%d are queued when the member is Ready, want the one", n)
		}
		req, _ := a.queue.Get()
		if _, err := r.Reconcile(t.Context(), req); err != nil || done != 1 {
			t.Errorf("%v was reconciled %d times: %v", req, done, err)
		}
		a.queue.Done(req)
		<-time.After(late.Most)
		if got, err := r.Reconcile(t.Context(), request("never", "x")); err != nil || got != (reconcile.Result{}) {
			t.Errorf("after a minute: %+v, %v", got, err)
		}
		if len(a.waiting.needs) != 0 || len(a.waiting.requests) != 0 {
			t.Errorf("there still wait %v", a.waiting.needs)
		}
	})
}

// TestARequestWaitsNoLongerForAClusterThatIsAnotherReplicas: its reconciler may be a guest there. It goes on waiting for the local cluster, which
// has no guests.
func TestARequestWaitsNoLongerForAClusterThatIsAnotherReplicas(t *testing.T) {
	t.Parallel()
	east := fleet.Member{Name: "east", Err: errors.New("no kubeconfig yet")}
	cases := map[string]func(a *attending, h *homes) (becomes func()){
		"HandedOver": func(a *attending, h *homes) func() {
			a.set(east)
			return func() { h.others = "east"; h.changed() }
		},
		"ReportedLater": func(a *attending, h *homes) func() {
			h.others = "east"
			return func() { a.set(east) }
		},
	}
	for name, begin := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &homes{}
				a := attendIn(t, fleet.Options{Ownership: h}, nil)
				a.ready("a")
				becomes := begin(a, h)
				r := a.reconciling(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
					_, err := a.fleet.Engagement("east")
					if req.Name == "local" {
						return failing(missing(fleet.ErrNotReady, mcreconcile.LocalCluster))(ctx, req)
					}
					return reconcile.Result{}, err
				})
				for _, req := range []mcreconcile.Request{request("a", "x"), request("a", "local")} {
					if result, err := r.Reconcile(t.Context(), req); err != nil || result.RequeueAfter != 0 {
						t.Errorf("%s: %v, %v, want that it waits", req, result, err)
					}
				}
				becomes()
				synctest.Wait()
				if _, waits := a.waiting.needs[request("a", "local")]; !waits || len(a.waiting.needs) != 1 || a.queue.Len() != 1 {
					t.Fatalf("%d are queued, and %v wait", a.queue.Len(), a.waiting.needs)
				}
				late := a.reconciling(failing(missing(fleet.ErrNotReady, "east"))) // since it has asked
				if result, err := late.Reconcile(t.Context(), request("a", "x")); err != nil || result.RequeueAfter != soon {
					t.Errorf("%v, %v, want that it is tried again soon", result, err)
				}
			})
		})
	}
}

// TestARequestOfAMemberThatLeavesIsNotTriedAgain: the queue is about to be purged of it.
func TestARequestOfAMemberThatLeavesIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		_, leave, err := a.engagement("a").Join(t.Context(), attendance[mcreconcile.Request]{})
		if err != nil {
			t.Fatal(err)
		}
		drained := a.remove("a")
		result, err := a.reconciling(nil).answer(t.Context(), request("a", "x"), reconcile.Result{}, missing(fleet.ErrNotReady, "a"))
		if err != nil || !result.IsZero() {
			t.Errorf("%v, %v, want that it is dropped", result, err)
		}
		leave()
		<-drained
	})
}

// TestARequestIsTriedAgainIfNobodyQueuesWhatWaits: as with a queue of the user's own.
func TestARequestIsTriedAgainIfNobodyQueuesWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		a.stop()
		synctest.Wait()
		result, err := a.reconciling(failing(missing(fleet.ErrUnknown, "b"))).Reconcile(t.Context(), request("a", "x"))
		if err != nil || result.RequeueAfter < later {
			t.Errorf("%v, %v, want that it is tried again after %s", result, err, later)
		}
	})
}

func TestARequestThatIsReconciledWaitsNoLonger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		a.waiting.add(request("a", "x"), ready("b", "c"))
		a.waiting.add(request("a", "y"), ready("b"))
		if _, err := a.reconciling(failing(nil)).Reconcile(t.Context(), request("a", "x")); err != nil {
			t.Fatal(err)
		}
		if len(a.waiting.needs) != 1 || len(a.waiting.requests) != 1 || !a.waiting.some.Load() {
			t.Errorf("%v wait, want the other request alone", a.waiting.needs)
		}
		if _, err := a.reconciling(failing(nil)).Reconcile(t.Context(), request("a", "y")); err != nil {
			t.Fatal(err)
		}
		if len(a.waiting.needs)+len(a.waiting.requests) != 0 || a.waiting.some.Load() {
			t.Errorf("%v wait, want none", a.waiting.needs)
		}
	})
}

// TestWhatCannotBeReconciledDoesNotReachTheReconciler: requests of a cluster that is not ready are about to be parked, and
// those of one that is gone, or was never there, are dropped.
func TestWhatCannotBeReconciledDoesNotReachTheReconciler(t *testing.T) {
	t.Parallel()
	for cluster, want := range map[fleet.ClusterName]time.Duration{"pending": soon, "leaving": soon, "left": 0, "nobody": 0} {
		t.Run(string(cluster), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := attend(t)
				a.set(fleet.Member{Name: "pending", Err: errors.New("no kubeconfig yet")})
				a.ready("left")
				<-a.remove("left")
				a.ready("leaving")
				_, leave, err := a.engagement("leaving").Join(t.Context(), attendance[mcreconcile.Request]{})
				if err != nil {
					t.Fatal(err)
				}
				drained := a.remove("leaving")
				defer func() { leave(); <-drained }()
				r := a.reconciling(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
					t.Error("it is reconciled")
					return reconcile.Result{}, nil
				})
				result, err := r.Reconcile(t.Context(), request(cluster, "x"))
				if err != nil || result.RequeueAfter != want || len(a.waiting.requests) > 0 {
					t.Errorf("%v, %v, want that it is tried again after %s, and waits for none", result, err, want)
				}
			})
		})
	}
}

// TestWhatAReconcileReturnsAfterItsEngagement: its errors are no errors then, since whatever it asked for was refused.
func TestWhatAReconcileReturnsAfterItsEngagement(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		next  fleet.Member // what is reported meanwhile; nothing if the member is removed
		err   error
		cause error
		want  reconcile.Result
	}{
		"EngagedAnewWithError": {
			next: fleet.Member{Name: "a", Identity: "1", Cluster: &existing{}}, err: context.Canceled,
			want: reconcile.Result{RequeueAfter: soon},
		},
		"EngagedAnew": {
			next: fleet.Member{Name: "a", Identity: "1", Cluster: &existing{}}, want: reconcile.Result{Priority: new(7)},
		},
		"AnotherCluster": {
			next: fleet.Member{Name: "a", Identity: "2", Cluster: &existing{}}, err: context.Canceled, cause: fleet.ErrAnotherCluster,
		},
		"AnotherClusterWithoutError": {
			next: fleet.Member{Name: "a", Identity: "2", Cluster: &existing{}}, cause: fleet.ErrAnotherCluster,
		},
		"Removed": {err: context.Canceled, want: reconcile.Result{RequeueAfter: soon}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := attend(t)
				a.set(fleet.Member{Name: "a", Identity: "1", Cluster: &existing{}})
				r := a.reconciling(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, fleet.ErrDisengaged) || tc.cause != nil && !errors.Is(cause, tc.cause) {
						t.Errorf("the context ended with %v, want ErrDisengaged, %v", cause, tc.cause)
					}
					<-time.After(time.Second) // it takes a moment to end
					return reconcile.Result{Priority: new(7)}, tc.err
				})
				var result reconcile.Result
				var err error
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					result, err = r.Reconcile(t.Context(), request("a", "x"))
				}()
				synctest.Wait()
				if tc.next.Name != "" {
					a.set(tc.next)
				} else {
					drained := a.remove("a")
					if isClosed(drained) {
						t.Error("the member is drained before its last reconcile has ended")
					}
					defer func() { <-drained }()
				}
				<-ended
				if diff := cmp.Diff(tc.want, result); err != nil || diff != "" {
					t.Errorf("the error is %v, the result (-want, +got):\n%s", err, diff)
				}
			})
		})
	}
}

// TestARequestOfNoMemberAnyMoreIsDropped when its engagement has ended, and the member is forgotten.
func TestARequestOfNoMemberAnyMoreIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		r := a.reconciling(failing(nil))
		if got := r.disengaged(request("nobody", "x")); !got.IsZero() {
			t.Errorf("it is tried again: %v", got)
		}
		if got := r.disengaged(request("a", "x")); got.RequeueAfter != soon {
			t.Errorf("that of a member is tried again after %s", got.RequeueAfter)
		}
	})
}

func TestARequestOfTheLocalClusterIsReconciledByTheManagersCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		r := a.reconciling(nil)
		controller, stop := context.WithCancel(t.Context())
		defer stop()
		r.started = controller
		r.inner = mcreconcile.Func(func(ctx context.Context, _ mcreconcile.Request) (reconcile.Result, error) {
			if name, ok := mcreconcile.ClusterNameFrom(ctx); !ok || name != mcreconcile.LocalCluster || mcreconcile.ClusterFrom(ctx) != r.mgr {
				t.Errorf("the context carries %q, %t", name, ok)
			}
			if life.Of(ctx) != controller {
				t.Error("the local cluster is not there for as long as the controller runs")
			}
			return reconcile.Result{}, missing(fleet.ErrUnknown, "b")
		})
		if _, err := r.Reconcile(t.Context(), request("", "x")); err != nil {
			t.Error(err)
		}
		if waits := a.waiting.needs[request("", "x")]; !slices.Equal(waits, ready("b")) {
			t.Errorf("it waits for %v", waits)
		}
	})
}

// TestAReconcileThatWasSuspendedIsNoFailure: it is tried again when the member is back. What has worked has worked.
func TestAReconcileThatWasSuspendedIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		a.ready("a")
		e, err := a.fleet.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, suspend := context.WithCancelCause(t.Context())
		suspend(fmt.Errorf("suspended: %w", fleet.ErrNotReady))
		for why, want := range map[error]time.Duration{errors.New("canceled"): soon, nil: 0} {
			if got, err := a.reconciling(failing(why)).engaged(ctx, e, request("a", "x")); err != nil || got.RequeueAfter != want {
				t.Errorf("after %v it is tried again after %s: %v", why, got.RequeueAfter, err)
			}
		}
	})
}

// TestAClusterThatIsReportedAgainHasAnotherInstance: it is the same object, but another engagement.
func TestAClusterThatIsReportedAgainHasAnotherInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, cl := attend(t), &existing{}
		made := 0
		r := a.reconciling(mcreconcile.PerCluster(func(cluster.Cluster) reconcile.Reconciler {
			made++
			return reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
		}).Reconcile)
		for engagement, identity := range []string{"1", "2"} {
			a.set(fleet.Member{Name: "a", Identity: identity, Cluster: cl})
			for range 2 {
				if _, err := r.Reconcile(t.Context(), request("a", "x")); err != nil {
					t.Fatal(err)
				}
			}
			if made != engagement+1 {
				t.Errorf("%d instances were made for %d engagements", made, engagement+1)
			}
		}
	})
}
