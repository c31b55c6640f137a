package dependents_test

import (
	gocmp "cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// outcomes are the results of an owner that were told last.
type outcomes struct {
	mu   sync.Mutex // guards last
	last map[string][]dependents.Result
}

// listen remembers the results of a reconciler's owners.
func listen(r *dependents.Reconciler[*corev1.ConfigMap]) *outcomes {
	o := &outcomes{last: map[string][]dependents.Result{}}
	r.Status = func(_ context.Context, owner *corev1.ConfigMap, results []dependents.Result) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last[owner.Name] = slices.Clone(results)
		return nil
	}
	return o
}

func (o *outcomes) of(owner string) []dependents.Result {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[owner]
}

// waits reports whether a cluster of the owner waits for something that the text names.
func (o *outcomes) waits(owner, text string) bool {
	return slices.ContainsFunc(o.of(owner), func(r dependents.Result) bool {
		return errors.Is(r.Err, dependents.ErrWaiting) && strings.Contains(r.Err.Error(), text)
	})
}

// are reports whether the owner's dependents in its first cluster have these states.
func (o *outcomes) are(owner string, want ...dependents.State) bool {
	var states []dependents.State
	if results := o.of(owner); len(results) > 0 {
		for _, obj := range results[0].Objects {
			states = append(states, obj.State)
		}
	}
	return slices.Equal(states, want)
}

func inWave(wave string, obj client.Object) client.Object {
	obj.SetAnnotations(map[string]string{dependents.WaveAnnotation: wave})
	return obj
}

func metaOf(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

// finish completes a Job, as the controller of Jobs does.
func (w *world) finish(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	now := metav1.Now()
	w.end(cp, name, batchv1.JobStatus{CompletionTime: &now, Succeeded: 1}, batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
}

// fail ends a Job as one that has failed, as the controller of Jobs does.
func (w *world) fail(cp *mctest.ControlPlane, name string) {
	w.t.Helper()
	w.end(cp, name, batchv1.JobStatus{Failed: 1}, batchv1.JobFailureTarget, batchv1.JobFailed)
}

// end writes the last status of a Job, with conditions that are true.
func (w *world) end(cp *mctest.ControlPlane, name string, status batchv1.JobStatus, conditions ...batchv1.JobConditionType) {
	w.t.Helper()
	job := &batchv1.Job{}
	if err := cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, job); err != nil {
		w.t.Fatal(err)
	}
	now := metav1.Now()
	status.StartTime = gocmp.Or(status.CompletionTime, &now)
	for _, is := range conditions {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: is, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	job.Status = status
	if err := cp.Client().Status().Update(w.t.Context(), job); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) job(name string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metaOf(w.ns, name), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}},
	}}}}
}

// TestAWaveWaitsUntilTheOneBeforeIsReady: and goes before it when the owner goes.
func TestAWaveWaitsUntilTheOneBeforeIsReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = append(r.Kinds, &batchv1.Job{})
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		inWave("2", all[0]).SetFinalizers([]string{"example.com/held"})
		return append(all, inWave("-1", w.job(owner.Name))), err
	}
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the later wave says for what it waits", func() bool { return told.waits("a", "Job "+w.ns+"/a") })
	if objects := told.of("a")[0].Objects; len(objects) != 2 || objects[0].Kind.Kind != "Job" || objects[1].State != dependents.Waiting {
		t.Errorf("the objects are %+v", objects)
	}
	if w.get(one, copyOf("a")) != nil {
		t.Error("the later wave is there")
	}
	w.finish(one, "a")
	w.isCopied(one, "a")

	w.remove(w.Local, "a")
	eventually(t, "the later wave is being deleted", func() bool { return w.mustGet(one, copyOf("a")).DeletionTimestamp != nil })
	eventually(t, "the first wave waits for it", func() bool {
		return slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool {
			return r.Err != nil && strings.Contains(r.Err.Error(), "later waves")
		})
	})
	eventually(t, "the states say so", func() bool { return told.are("a", dependents.Deleting, dependents.Waiting) })
	if !w.isThere(one, w.job("a")) {
		t.Error("the first wave went before the later one")
	}
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.isGone(w.Local, "a")
	eventually(t, "the first wave is gone", func() bool { job := w.job("a"); return !w.isThere(one, job) || job.DeletionTimestamp != nil })
}

// crdOf returns the CRD of a kind with namespaces, and without a status.
func crdOf(kind schema.GroupVersionKind, plural string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind.Kind, "plural": plural},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}

// TestACRDGoesBeforeAllElse: no annotation is needed. It goes after that when the owner goes.
func TestACRDGoesBeforeAllElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	crd := crdOf(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Sprocket"}, "sprockets")
	sprocket := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Sprocket"}}
	sprocket.SetNamespace(w.ns)
	sprocket.SetName("a")
	sprocket.SetFinalizers([]string{"example.com/held"})
	r := w.spread()
	r.Kinds = append(r.Kinds, crd.DeepCopy(), sprocket.DeepCopy())
	copies := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := copies(ctx, owner, target)
		return append(all, sprocket.DeepCopy(), crd.DeepCopy()), err
	}
	told := listen(r)
	p := w.run(r)
	sent := (&sentTo{}).by(p)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the object of its kind is there", func() bool { return w.isThere(one, sprocket.DeepCopy()) })
	crdPath, inNamespace := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+crd.GetName(), "/namespaces/"+w.ns
	copyPath, sprocketPath := "/api/v1"+inNamespace+"/configmaps/a-copy", "/apis/example.com/v1"+inNamespace+"/sprockets/a"
	sent.hasWritten(t, one, "PATCH "+crdPath, "PATCH "+copyPath, "PATCH "+sprocketPath)
	w.remove(w.Local, "a")
	eventually(t, "the CRD waits for what is there of its kind", func() bool { return told.are("a", dependents.Deleting, dependents.Waiting) })
	removed := sent.changes(hostOf(one))[hostOf(one)]
	slices.Sort(removed) // within a wave there is no order
	if diff := cmp.Diff([]string{"DELETE " + copyPath, "DELETE " + sprocketPath}, removed); diff != "" {
		t.Fatalf("what is removed first (-want, +got):\n%s", diff)
	}
	w.release(one, sprocket.DeepCopy())
	eventually(t, "the CRD is gone", func() bool { return !w.isThere(one, crd.DeepCopy()) })
	sent.hasWritten(t, one, "DELETE "+crdPath)
}

// release takes the finalizers of an object.
func (w *world) release(cp *mctest.ControlPlane, obj client.Object) {
	w.t.Helper()
	if err := cp.Client().Patch(w.t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		w.t.Fatal(err)
	}
}

// TestANamespaceGoesBeforeWhatIsInIt: without an annotation, a failed attempt, or CreateNamespaces. It goes after that when the owner goes.
func TestANamespaceGoesBeforeWhatIsInIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, ns := w.Members[0], w.ns+"-desired"
	r := w.spread()
	r.Kinds = append(r.Kinds, &corev1.Namespace{})
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		inIt := &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf(owner.Name))}
		inIt.Finalizers = []string{"example.com/held"}
		return []client.Object{inIt, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}}, nil
	}
	told := listen(r)
	p := w.run(r)
	sent := (&sentTo{}).by(p)
	w.create(w.Local, w.owner("a", one.Name))
	inIt := &corev1.ConfigMap{ObjectMeta: metaOf(ns, copyOf("a"))}
	eventually(t, "the ConfigMap is there", func() bool { return w.isThere(one, inIt) })
	path := "/api/v1/namespaces/" + ns
	sent.hasWritten(t, one, "PATCH "+path, "PATCH "+path+"/configmaps/a-copy")
	w.remove(w.Local, "a")
	eventually(t, "one of them waits for the other", func() bool { return told.are("a", dependents.Deleting, dependents.Waiting) })
	sent.hasWritten(t, one, "DELETE "+path+"/configmaps/a-copy")
	w.release(one, inIt)
	eventually(t, "the Namespace goes", func() bool { return w.namespace(one, ns) == nil })
	sent.hasWritten(t, one, "DELETE "+path)
}

// TestARemovalThatFailsIsToldAndTriedAgain at once, also where earlier waves wait for it.
func TestARemovalThatFailsIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	dependents.Hasten(r, time.Hour) // it is not found because it is looked at from time to time
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		return append(all, inWave("1", &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "last")})), err
	}
	told := listen(r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	eventually(t, "the last wave is there", func() bool { return w.get(one, "last") != nil })
	stop := p.refuse(http.MethodDelete, one, "/configmaps/last")
	w.remove(w.Local, "a")
	w.told(w.Local, "a", dependents.EventFailed, "refused by the test")
	eventually(t, "the states say so", func() bool { return told.are("a", dependents.Failed, dependents.Waiting) })
	if why := told.of("a")[0].Objects[0].Err; why == nil || !strings.Contains(why.Error(), "refused by the test") {
		t.Errorf("what was not removed has the error %v", why)
	}
	if w.get(one, copyOf("a")) == nil {
		t.Error("an earlier wave went before the last one")
	}
	stop()
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
}

// TestWhatCannotBeReadMayBeOfALaterWave, which goes first: an operator stays while a member does not list what it looks after. Where nothing
// has a wave, the rest goes.
func TestWhatCannotBeReadMayBeOfALaterWave(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, last string // the waves, empty for none
		restart     bool   // the program does not know what it wrote
		unwanted    bool   // all is, and the owner stays
		goes        bool
	}{
		"it was written in one":                        {last: "1"},
		"it was written in one, and is not desired":    {last: "1", unwanted: true},
		"it was written before":                        {first: "1", last: "0", goes: true},
		"none has a wave":                              {goes: true},
		"none has a wave, and none is desired":         {unwanted: true, goes: true},
		"another has one, after a restart":             {first: "-1", restart: true},
		"another has one, and is not desired, as well": {first: "-1", restart: true, unwanted: true},
		"none has a wave, after a restart":             {restart: true, goes: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			w.Members = nil // it joins below
			first, last := w.configMap("operator"), &corev1.Secret{ObjectMeta: metaOf(w.ns, "looked-after")}
			for obj, wave := range map[client.Object]string{first: tc.first, last: tc.last} {
				if wave != "" {
					inWave(wave, obj)
				}
			}
			r := w.spread()
			r.Kinds, r.Timeout = append(r.Kinds, &corev1.Secret{}), 2*time.Second
			r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
				if owner.Data["value"] == "none" {
					return nil, nil
				}
				return []client.Object{first.DeepCopy(), last.DeepCopy()}, nil
			}
			told := listen(r)
			p := w.run(r)
			p.add(one, one.Config())
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "both are there", func() bool { return w.get(one, "operator") != nil && w.isThere(one, last.DeepCopy()) })
			eventually(t, "the program is at rest", p.isAtRest)
			if tc.restart {
				p.stop()
				p = w.run(r)
			} else {
				<-p.members.Remove(fleet.ClusterName(one.Name))
			}
			stop := p.refuse(http.MethodGet, one, "/secrets")
			if tc.unwanted {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "none" })
			} else {
				w.remove(w.Local, "a")
			}
			p.add(one, one.Config())
			if tc.goes {
				w.isGone(one, "operator")
			} else {
				eventually(t, "the result says for what it waits", func() bool {
					results := told.of("a")
					return told.are("a", dependents.Waiting) && strings.Contains(results[0].Objects[0].Err.Error(), "Secret of cluster") &&
						strings.Contains(results[0].Err.Error(), "Secret")
				})
				eventually(t, "the program is at rest", p.isAtRest)
				if w.mustGet(one, "operator").DeletionTimestamp != nil {
					t.Error("it went before what it looks after")
				}
			}
			stop()
			w.isGone(one, "operator")
			eventually(t, "all is gone", func() bool { return !w.isThere(one, last.DeepCopy()) })
			if !tc.unwanted {
				w.isGone(w.Local, "a")
			}
		})
	}
}

// TestWhatWentFirstHoldsUpNothing although it cannot be read any more: the wave after it may have had what served it.
func TestWhatWentFirstHoldsUpNothing(t *testing.T) {
	t.Parallel()
	for name, unwanted := range map[string]bool{"the owner goes": false, "it was not desired any more, and the owner goes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			one := w.Members[0]
			api, server, served := w.configMap("api"), w.configMap("server"), &corev1.Secret{ObjectMeta: metaOf(w.ns, "served")}
			inWave("-1", api)
			inWave("1", served)
			server.Finalizers = []string{"example.com/held"}
			r := w.spread()
			r.Kinds = append(r.Kinds, &corev1.Secret{})
			r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
				if owner.Data["value"] == "none" {
					return nil, nil
				}
				return []client.Object{api.DeepCopy(), server.DeepCopy(), served.DeepCopy()}, nil
			}
			told := listen(r)
			p := w.run(r)
			w.create(w.Local, w.owner("a", one.Name))
			eventually(t, "all are there", func() bool { return w.get(one, "api") != nil && w.isThere(one, served.DeepCopy()) })
			eventually(t, "the program is at rest", p.isAtRest)
			if unwanted {
				w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "none" })
				eventually(t, "what serves it goes", func() bool { return told.are("a", dependents.Deleting, dependents.Waiting) })
			} else {
				w.remove(w.Local, "a")
			}
			eventually(t, "what serves it is about to go", func() bool { return w.mustGet(one, "server").DeletionTimestamp != nil })
			open := p.refuse(http.MethodGet, one, "/secrets")
			if unwanted {
				w.remove(w.Local, "a")
			}
			w.release(one, server.DeepCopy())
			w.isGone(one, "api")
			open()
			w.isGone(w.Local, "a")
		})
	}
}

// TestAWaveThatIsNoNumberIsAnError: nothing is removed meanwhile.
func TestAWaveThatIsNoNumberIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.spread()
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := desired(ctx, owner, target)
		if wave := owner.Data["wave"]; wave != "" {
			inWave(wave, all[0])
		}
		return all, err
	}
	told := listen(r)
	w.run(r)
	w.create(w.Local, w.owner("a", w.Members[0].Name))
	before := w.isCopied(w.Members[0], "a")
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["wave"] = "first" })
	eventually(t, "the result says so", func() bool {
		return slices.ContainsFunc(told.of("a"), func(r dependents.Result) bool {
			return r.Err != nil && strings.Contains(r.Err.Error(), "must be an integer")
		})
	})
	if now := w.get(w.Members[0], copyOf("a")); now == nil || now.UID != before.UID {
		t.Errorf("the dependent is %v, and was %v", now, before)
	}
}
