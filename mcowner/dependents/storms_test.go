package dependents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestDeletionsThatHangHoldAWorkerAboutAsLongAsOne, whoever gives no answer, and whyever it is deleted.
func TestDeletionsThatHangHoldAWorkerAboutAsLongAsOne(t *testing.T) {
	t.Parallel()
	const count = 20
	silent := func(_ *world, cp *mctest.ControlPlane) *rest.Config {
		cfg, _ := into(cp, deletions)
		return cfg
	}
	goes := func(w *world) { w.remove(w.Local, "a") }
	for name, c := range map[string]struct {
		hang func(*world, *mctest.ControlPlane) *rest.Config
		end  func(*world)
	}{
		"the API server, for an owner that goes": {silent, goes},
		"a webhook, for an owner that goes":      {(*world).hangingWebhook, goes},
		"the API server, for what is not desired": {silent, func(w *world) {
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			w.Members = nil // reported below
			r := w.spread()
			r.Timeout = 2 * time.Second // two removals by the webhook
			r.Desired = w.names
			p := w.run(r)
			p.add(one, c.hang(w, one))
			owner := w.owner("a", one.Name)
			owner.Data["value"] = ""
			for i := range count {
				owner.Data["value"] += fmt.Sprintf(" orphan-%d", i)
			}
			w.create(w.Local, owner)
			eventually(t, "the dependents are there", func() bool { return len(w.list(one)) == count })
			var before atomic.Int32                            // deletions until the owner was told
			tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
				if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/events") && p.power.deletions.Load() > 0 {
					before.CompareAndSwap(0, p.power.deletions.Load())
				}
				return nil
			}
			p.power.tap.Store(&tap)
			c.end(w)
			w.told(w.Local, "a", dependents.EventFailed, "orphan-")
			if n := before.Load(); n > count/5 {
				t.Errorf("%d deletions were tried before the worker was free", n)
			}
		})
	}
}

// TestWhatHangsHoldsUpNoOtherObject of its owner in that cluster, although one that hangs ends an attempt.
func TestWhatHangsHoldsUpNoOtherObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.Members = nil // reported below
	r := w.spread()
	r.Timeout = time.Second
	r.Desired = w.names
	var last atomic.Pointer[dependents.Result]
	r.Status = func(_ context.Context, _ *corev1.ConfigMap, results []dependents.Result) error {
		if len(results) > 0 {
			last.Store(&results[0])
		}
		return nil
	}
	cfg, sunk := into(one, func(req *http.Request) bool {
		return req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/configmaps/hangs")
	})
	p := w.run(r)
	p.add(one, cfg)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "hangs-1 hangs-2 x y"
	w.create(w.Local, owner)
	for _, name := range []string{"x", "y"} {
		eventually(t, name+" is there", func() bool { return w.get(one, name) != nil })
	}
	eventually(t, "each has been tried again", func() bool { return sunk.Load() > 4 })
	if got := last.Load(); len(got.Objects) != 4 {
		t.Errorf("the status is told of %d objects, want 4: %v", len(got.Objects), got.Objects)
	}
}

// TestAKindThatHangsHoldsUpNoOtherKind of what an owner has in a cluster, wherever it stands in what is desired.
func TestAKindThatHangsHoldsUpNoOtherKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.Members = nil // reported below
	r := w.spread()
	r.Timeout = time.Second
	r.Kinds = []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		rest, err := w.names(ctx, owner, target)
		return append([]client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "hangs"}}}, rest...), err
	}
	cfg, _ := into(one, func(req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/secrets") })
	p := w.run(r)
	p.add(one, cfg)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "x"
	w.create(w.Local, owner)
	eventually(t, "what is of the other kind is there", func() bool { return w.get(one, "x") != nil })
	w.told(w.Local, "a", dependents.EventFailed, "Secret")
}

// TestAKindThatHangsLetsOthersGo where the owner goes, or the cluster is no target any more.
func TestAKindThatHangsLetsOthersGo(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world){
		"the owner goes": func(w *world) { w.remove(w.Local, "a") },
		"it is no target any more": func(w *world) {
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Annotations["to"] = "" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one, secret := w.Members[0], &corev1.Secret{ObjectMeta: metaOf(w.ns, "a")}
			w.Members = nil // reported below
			r := w.spread()
			r.Timeout = time.Second
			r.Kinds = append(r.Kinds, &corev1.Secret{})
			copies := r.Desired
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				all, err := copies(ctx, owner, target)
				return append(all, secret.DeepCopy()), err
			}
			var hangs atomic.Bool
			cfg, _ := into(one, func(req *http.Request) bool { return hangs.Load() && strings.HasSuffix(req.URL.Path, "/configmaps") })
			p := w.run(r)
			p.add(one, cfg)
			w.create(w.Local, w.owner("a", one.Name))
			w.isCopied(one, "a")
			eventually(t, "what is of the other kind is there", func() bool { return w.isThere(one, secret.DeepCopy()) })
			hangs.Store(true)
			end(w)
			eventually(t, "it is gone", func() bool { return !w.isThere(one, secret.DeepCopy()) })
			hangs.Store(false)
			w.isGone(one, copyOf("a"))
		})
	}
}

// TestADiscoveryThatHangsHoldsUpNoOtherKind longer than a list that does, once it is known to hang.
func TestADiscoveryThatHangsHoldsUpNoOtherKind(t *testing.T) {
	t.Parallel()
	for name, allow := range map[string]func(*dependents.Reconciler[*corev1.ConfigMap], ...client.Object){
		"of Kinds": func(r *dependents.Reconciler[*corev1.ConfigMap], hanging ...client.Object) {
			r.Kinds = append(hanging, r.Kinds...)
		},
		"of MoreKinds": func(r *dependents.Reconciler[*corev1.ConfigMap], _ ...client.Object) {
			r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			w.Members = nil // reported below
			r := w.spread()
			r.Timeout = time.Second
			gadget, widget := w.gadget("v1"), w.gadget("v1")
			widget.SetKind("Widget")
			allow(r, gadget, widget)
			copies := r.Desired
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				all, err := copies(ctx, owner, target)
				return append(all, gadget.DeepCopy(), widget.DeepCopy()), err
			}
			cfg, hung := into(one, func(req *http.Request) bool { return strings.HasPrefix(req.URL.Path, "/apis/"+w.ns+".example.com") })
			p := w.run(r)
			p.add(one, cfg)
			w.create(w.Local, w.owner("a", one.Name))
			w.isCopied(one, "a")
			before := hung.Load()
			w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			eventually(t, "it is changed", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
			if more := hung.Load() - before; more > 1 {
				t.Errorf("until it was changed, discovery was waited for %d times", more)
			}
		})
	}
}

// refusing answers requests by itself.
type refusing struct {
	answer  func(*http.Request) *metav1.Status // nil for what goes through
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	status := r.answer(req)
	if status == nil {
		return r.through.RoundTrip(req)
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	content, err := json.Marshal(status)
	return &http.Response{
		StatusCode: int(status.Code), Status: http.StatusText(int(status.Code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(content)), Request: req,
	}, err
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (r *refusing) WrappedRoundTripper() http.RoundTripper { return r.through }

// TestConflictsBackOffAndAreTold: the pause grows with each.
func TestConflictsBackOffAndAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	w.Members = nil // reported below
	var mu sync.Mutex
	var tries []time.Time
	cfg := one.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return &refusing{through: through, answer: func(req *http.Request) *metav1.Status {
			if req.Method != http.MethodPatch || !strings.HasSuffix(req.URL.Path, "/configmaps/"+copyOf("a")) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Now())
			return &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "there it is"}
		}}
	})
	p := w.run(w.spread())
	p.add(one, cfg)
	w.create(w.Local, w.owner("a", one.Name))
	w.told(w.Local, "a", dependents.EventContended, "two controllers")
	mu.Lock()
	defer mu.Unlock()
	n := len(tries)
	if n < 3 || n > 20 {
		t.Fatalf("it was told after %d conflicts", n)
	}
	if last := tries[n-1].Sub(tries[n-2]); last < 4*100*time.Millisecond {
		t.Errorf("the pause after %d conflicts was %s, want at least four times the first, which is 100ms", n-1, last)
	}
}

// forge creates dependents of owners that nobody has seen, each of another.
func (w *world) forge(cp *mctest.ControlPlane, count int, in mcreconcile.ClusterName) {
	w.t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: fmt.Sprintf("forged-%d", i)}}
			err := mcowner.SetControllerReference(mcowner.Reference{
				Fleet: fleetName, Manager: controller, Controller: true, Cluster: in, APIVersion: "v1", Kind: "ConfigMap",
				Namespace: w.ns, Name: fmt.Sprintf("nobody-%d", i), UID: "nobody",
			}, cm, mcowner.ByName(mcreconcile.ClusterName(cp.Name)))
			if err != nil {
				return err
			}
			return cp.Client().Create(w.t.Context(), cm)
		})
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// TestForgedReferencesCostFewRequests, and no list or watch where no owners are.
func TestForgedReferencesCostFewRequests(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]mcreconcile.ClusterName{"where owners are": mcreconcile.LocalCluster, "elsewhere": "member-2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const count = 300
			w := newWorld(t, 2)
			one, two := w.Members[0], w.Members[1]
			r := w.spread()
			r.DependentsIn = mcowner.Clusters{Members: named(one.Name)}
			r.Sweep.QPS = 1
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			w.isCopied(one, "a")
			p.is(two, "Ready")
			var gets, lists atomic.Int32
			tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
				switch {
				case strings.Contains(req.URL.Path, "/configmaps/nobody"):
					gets.Add(1)
				case req.URL.Host == hostOf(two) && strings.HasSuffix(req.URL.Path, "/configmaps"):
					lists.Add(1)
				}
				return nil
			}
			p.power.tap.Store(&tap)
			w.forge(one, count, in)
			w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drifted" }) // seen after the others
			eventually(t, "the last event was worked on", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "1" })
			eventually(t, "nothing is written any more", p.isAtRest)
			if n := gets.Load(); n > count/3 {
				t.Errorf("%d requests were made for %d owners that nobody has seen", n, count)
			}
			if n := lists.Load(); n > 0 {
				t.Errorf("a cluster without owners was asked %d times for all objects of their kind", n)
			}
		})
	}
}

// TestOwnersWithoutTargetsAskNobody: no request is about one of them, and the member gets none at all, but for watches that go on.
func TestOwnersWithoutTargetsAskNobody(t *testing.T) {
	t.Parallel()
	const count = 20
	w := newWorld(t, 1)
	one := w.Members[0]
	w.Members = nil // what is sent is noted before it joins
	var desired atomic.Int32
	var planned sync.Map // owners as they are after the change
	r := w.spread()
	find, targets := r.Desired, r.Targets
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if strings.HasPrefix(owner.Name, "none") {
			desired.Add(1)
		}
		return find(ctx, owner, target)
	}
	r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Data["value"] == "2" {
			planned.Store(owner.Name, true)
		}
		return targets(ctx, owner)
	}
	p := w.run(r)
	sent := (&sentTo{watches: map[string]bool{}}).by(p)
	p.add(one, one.Config())
	p.is(one, "Ready")
	eventually(t, "nothing is asked any more", func() bool { return sent.isQuiet(p) })

	name := func(i int) string { return fmt.Sprintf("none-%d", i) }
	for i := range count {
		w.create(w.Local, w.owner(name(i)))
		w.change(w.Local, name(i), func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	}
	eventually(t, "all were planned", func() bool {
		all := 0
		planned.Range(func(_, _ any) bool { all++; return true })
		return all == count
	})
	w.remove(w.Local, name(0))
	eventually(t, "nothing is written any more", p.isAtRest)
	asked := sent.take()
	about := slices.DeleteFunc(asked[hostOf(w.Local)], func(req string) bool { return !strings.Contains(req, "/none-") })
	if all := slices.Concat(asked[hostOf(one)], about); len(all) > 0 {
		t.Errorf("for owners without targets there were the requests %q", all)
	}
	if n := desired.Load(); n > 0 {
		t.Errorf("Desired was called %d times", n)
	}
	w.create(w.Local, w.owner("last", one.Name)) // the program was at work
	w.isCopied(one, "last")
	if got := sent.take()[hostOf(one)]; !slices.ContainsFunc(got, func(req string) bool { return strings.HasPrefix(req, "PATCH ") }) {
		t.Errorf("the requests of an owner with a target were not noted: %q", got)
	}
}

// TestWritersThatFightAreTold and not fought for ever: what else there is goes on, and the last word is the owner's.
func TestWritersThatFightAreTold(t *testing.T) {
	t.Parallel()
	for name, fight := range map[string]func(context.Context, client.Client, *corev1.ConfigMap) error{
		"by changes": func(ctx context.Context, c client.Client, cm *corev1.ConfigMap) error {
			patch := client.MergeFrom(cm.DeepCopy())
			cm.Data["value"] = "theirs"
			return c.Patch(ctx, cm, patch)
		},
		"by deletions": func(ctx context.Context, c client.Client, cm *corev1.ConfigMap) error { return c.Delete(ctx, cm) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			r := w.spread()
			r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
				rest, err := w.names(ctx, owner, target)
				return append([]client.Object{&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "fought", Annotations: map[string]string{dependents.WaveAnnotation: "-1"}},
					Data:       map[string]string{"value": "ours"},
				}}, rest...), err
			}
			w.run(r)
			owner := w.owner("a", one.Name)
			owner.Data["value"] = "x"
			w.create(w.Local, owner)
			eventually(t, "both waves are there", func() bool { return w.get(one, "fought") != nil && w.get(one, "x") != nil })

			times, stop := w.fights(one, "fought", fight)
			w.told(w.Local, "a", dependents.EventContended, "fought")
			if n := times.Load(); n < 5 {
				t.Errorf("it was told after %d corrections, want five at least", n)
			}
			w.isLeft(times)
			if name == "by changes" {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "y" })
				eventually(t, "what is new of a later wave is there", func() bool { return w.get(one, "y") != nil })
				w.isGone(one, "x")
			}
			stop()
			eventually(t, "it is as desired", func() bool {
				cm := w.get(one, "fought")
				return cm != nil && cm.Data["value"] == "ours"
			})
		})
	}
}

// TestANamespaceThatSomebodyDeletesTimeAndAgainIsContended, as any dependent is, and is there once that ends.
func TestANamespaceThatSomebodyDeletesTimeAndAgainIsContended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name := w.Members[0], w.ns+"-new"
	contested := w.contestsOf(one, "Namespace "+name)
	w.create(w.Local, w.ownerIn("a", name))
	deletions := 0
	eventually(t, "it is told that others delete it", func() bool {
		if ns := w.namespace(one, name); ns != nil {
			deletions++
			w.removeNamespace(one, ns)
		}
		return contested("a")
	})
	if deletions < 5 {
		t.Errorf("it was told after %d deletions, want five at least", deletions)
	}
	eventually(t, "it is there again, with what is desired in it", func() bool {
		return w.isThere(one, &corev1.ConfigMap{ObjectMeta: metaOf(name, copyOf("a"))})
	})
}

// TestWhoeverSharesANamespaceCountsThatOthersDeleteIt, and not the owner alone that has created it anew: all leave it to them for a while.
func TestWhoeverSharesANamespaceCountsThatOthersDeleteIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, name, owners := w.Members[0], w.ns+"-new", []string{"a", "b", "c"}
	contested := w.contestsOf(one, "Namespace "+name)
	for _, owner := range owners {
		w.create(w.Local, w.ownerIn(owner, name))
	}
	deletions := 0
	eventually(t, "all are told that others delete it", func() bool {
		if w.ownersOf(one, name) == len(owners) {
			deletions++
			w.removeNamespace(one, w.namespace(one, name))
		}
		return !slices.ContainsFunc(owners, func(owner string) bool { return !contested(owner) })
	})
	if deletions > 8 {
		t.Errorf("it was told after %d deletions, want few more than five", deletions)
	}
}

// contestsOf runs a program that creates namespaces. What it returns reports whether an owner's result says that others fight about an object:
// an event is of no use here, since it keeps the text of the first of its series.
func (w *world) contestsOf(cp *mctest.ControlPlane, object string) func(owner string) bool {
	w.t.Helper()
	var results latest
	r := w.inNamespaces()
	r.Status = results.note
	w.run(r)
	return func(owner string) bool {
		err := results.of(owner, cp).Err
		return err != nil && strings.Contains(err.Error(), object) && strings.Contains(err.Error(), "two controllers")
	}
}

// removeNamespace deletes a namespace with the copies in it, as the controllers do that are in no control plane of a test.
func (w *world) removeNamespace(cp *mctest.ControlPlane, ns *corev1.Namespace) {
	w.t.Helper()
	c := cp.Client()
	err := c.DeleteAllOf(w.t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns.Name))
	if err == nil {
		err = c.Delete(w.t.Context(), ns)
	}
	if err == nil {
		ns = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
		err = c.SubResource("finalize").Update(w.t.Context(), ns)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestNothingIsRemovedBesideAContestWhileSomethingIsWaitedFor: what is missing is desired, for all that is known.
func TestNothingIsRemovedBesideAContestWhileSomethingIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		fought := &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "fought"), Data: map[string]string{"value": "ours"}}
		if owner.Data["waits"] != "" {
			return []client.Object{fought}, fmt.Errorf("the rest is not known: %w", dependents.ErrWaiting)
		}
		rest, err := w.names(ctx, owner, target)
		return append(rest, fought), err
	}
	told := listen(r)
	p := w.run(r)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "x"
	w.create(w.Local, owner)
	eventually(t, "all are there", func() bool { return w.get(one, "fought") != nil && w.get(one, "x") != nil })
	x := w.get(one, "x")
	_, stop := w.fights(one, "fought", func(ctx context.Context, c client.Client, cm *corev1.ConfigMap) error {
		patch := client.MergeFrom(cm.DeepCopy())
		cm.Data["value"] = "theirs"
		return c.Patch(ctx, cm, patch)
	})
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["waits"] = "yes" })
	w.told(w.Local, "a", dependents.EventContended, "fought")
	eventually(t, "all rests", p.isAtRest)
	if now := w.get(one, "x"); now == nil || now.UID != x.UID {
		t.Fatal("what is not known to be not desired is gone")
	}
	eventually(t, "it is waited for the rest", func() bool {
		return slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool { return errors.Is(r.Unready, dependents.ErrWaiting) })
	})
	stop()
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["waits"], cm.Data["value"] = "", "y" })
	eventually(t, "what is new is there", func() bool { return w.get(one, "y") != nil })
	w.isGone(one, "x")
}

// fights starts somebody in a cluster that does something to an object whenever it is as desired.
func (w *world) fights(
	cp *mctest.ControlPlane, name string, fight func(context.Context, client.Client, *corev1.ConfigMap) error,
) (times *atomic.Int32, stop func()) {
	return w.again(func(ctx context.Context) bool {
		cm := &corev1.ConfigMap{}
		err := cp.Client().Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, cm)
		return err == nil && cm.Data["value"] == "ours" && fight(ctx, cp.Client(), cm) == nil
	})
}

// again starts somebody who does something again and again, and counts how often that was so.
func (w *world) again(do func(context.Context) bool) (times *atomic.Int32, stop func()) {
	times = &atomic.Int32{}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if do(ctx) {
				times.Add(1)
			}
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return times, stop
}
