package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// requests are those of a program that are about objects of a namespace.
type requests struct {
	mu  sync.Mutex // guards all
	all []string
}

// requestsOf notes the requests of a program about single objects of a namespace, in whatever cluster.
func requestsOf(p *process, namespace, resource string) *requests {
	r := &requests{}
	tap := func(req *http.Request) func() {
		_, object, ok := strings.Cut(req.URL.Path, "/namespaces/"+namespace+"/"+resource)
		if ok && (object != "" || req.Method != http.MethodGet) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all = append(r.all, req.Method+" "+strings.TrimPrefix(object, "/"))
		}
		return nil
	}
	p.power.tap.Store(&tap)
	return r
}

func (r *requests) sorted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.all)
	slices.Sort(all)
	return all
}

// TestADependentCostsOneRequest when it is created, and one when it is changed, even if a field goes with which it was created.
func TestADependentCostsOneRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = []client.Object{&corev1.Secret{}}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		value := owner.Data["value"]
		return []client.Object{&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name)}, Data: map[string][]byte{"value": []byte(value), "only-" + value: []byte("yes")},
		}}, nil
	}
	all := reportsOf(t, r)
	p := w.run(r)
	sent := requestsOf(p, w.ns, "secrets")
	w.create(w.Local, w.owner("a", one.Name))
	all.is("a", dependents.Applied, dependents.Unchanged)
	eventually(t, "all is at rest", p.isAtRest)
	has := func(value string) func() bool {
		return func() bool {
			got, ok := all.object("a").Object.(*corev1.Secret)
			return ok && string(got.Data["value"]) == value && all.object("a").Err == nil
		}
	}
	cost := func(n int) {
		t.Helper()
		if diff := cmp.Diff(slices.Repeat([]string{"PATCH " + copyOf("a")}, n), sent.sorted()); diff != "" {
			t.Errorf("the requests (-want, +got):\n%s", diff)
		}
	}
	for i, value := range []string{"2", "3"} {
		cost(1 + i)
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		eventually(t, "it is changed", has(value))
		eventually(t, "all is at rest", p.isAtRest)
		if got := all.object("a").Object.(*corev1.Secret).Data; len(got) != 2 {
			t.Errorf("fields have stayed that are not desired any more: %v", got)
		}
	}
	cost(3)
}

// TestWhatACacheDoesNotHaveYetIsReadAndNotWrittenInVain: an owner that is changed again, while events of what was written are still on the way.
func TestWhatACacheDoesNotHaveYetIsReadAndNotWrittenInVain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	ear := newEar(t)
	r := w.spread()
	all := reportsOf(t, r)
	p := w.runBehind(ear, one, r)
	w.create(w.Local, w.owner("a", one.Name))
	all.is("a", dependents.Applied, dependents.Unchanged)
	eventually(t, "all is at rest, and the cache knows of it", func() bool { return p.isAtRest() && p.knows(one, w.mustGet(one, copyOf("a"))) })
	ear.stop()
	sent := requestsOf(p, w.ns, "configmaps/"+copyOf("a"))
	for _, value := range []string{"2", "3", "4"} {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		eventually(t, "it is changed", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == value })
		eventually(t, "all is at rest", p.isAtRest)
	}
	writes := slices.DeleteFunc(sent.sorted(), func(req string) bool { return !strings.HasPrefix(req, http.MethodPatch) })
	if len(writes) != 3 {
		t.Errorf("%d requests have written three changes: %v", len(writes), sent.sorted())
	}
}

// sentTo are the requests of a program, by the cluster that was asked: all but for events, leases, watches, and questions after health.
type sentTo struct {
	mu   sync.Mutex // guards what follows
	all  map[string][]string
	open int // that were not answered yet
	// watches are the hosts and paths that were watched so far, nil if watches are left out. The first of each counts.
	watches map[string]bool
}

// by notes what a program sends from now on.
func (s *sentTo) by(p *process) *sentTo {
	s.all = map[string][]string{}
	tap := s.note
	p.power.tap.Store(&tap)
	return s
}

func (s *sentTo) note(req *http.Request) (answered func()) {
	for _, other := range []string{"/events", "/leases", "/readyz"} {
		if strings.Contains(req.URL.Path, other) {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.URL.Query().Has("watch") && !s.isNewLocked(req.URL.Host+req.URL.Path) {
		return nil
	}
	s.all[req.URL.Host] = append(s.all[req.URL.Host], req.Method+" "+req.URL.Path)
	s.open++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}
}

// isNewLocked reports whether a watch is the first of its kind.
func (s *sentTo) isNewLocked(watch string) bool {
	isNew := s.watches != nil && !s.watches[watch]
	if isNew {
		s.watches[watch] = true
	}
	return isNew
}

// changes are what take returns, of one cluster without what is read: where its cache is late, it is asked.
func (s *sentTo) changes(of string) map[string][]string {
	all := s.take()
	all[of] = slices.DeleteFunc(all[of], func(req string) bool { return strings.HasPrefix(req, http.MethodGet) })
	return all
}

// hasWritten fails the test unless this was written to a cluster since the last time, in this order.
func (s *sentTo) hasWritten(t *testing.T, cp *mctest.ControlPlane, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.changes(hostOf(cp))[hostOf(cp)]); diff != "" {
		t.Fatalf("the writes to %s (-want, +got):\n%s", cp.Name, diff)
	}
}

// isQuiet reports whether nothing was sent for a while, and all was answered. It forgets what was sent.
func (s *sentTo) isQuiet(p *process) bool {
	s.take()
	rests := p.isAtRest()
	s.mu.Lock()
	defer s.mu.Unlock()
	return rests && s.open == 0 && len(s.all) == 0
}

// take returns what was sent since the last time.
func (s *sentTo) take() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = map[string][]string{}
	return all
}

// TestAnEventInOneClusterTouchesThatClusterAlone: a dependent that drifts, or is deleted, takes requests to its cluster. The others
// have no work, and are asked for nothing. Nor is the owner's, but for a status that is another one now.
func TestAnEventInOneClusterTouchesThatClusterAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	one := w.Members[1]
	owner := w.deployment("a")
	r, work := w.sayingUIDs(), &worked{in: map[fleet.ClusterName]bool{}}
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *appsv1.Deployment, target dependents.Target) ([]client.Object, error) {
		work.note(target.Cluster)
		return desired(ctx, owner, target)
	}
	p := w.run(r)
	w.create(w.Local, owner)
	for _, cp := range w.Members {
		w.isCopied(cp, "a")
	}
	says := func() bool {
		there := &appsv1.Deployment{}
		if err := w.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(owner), there); err != nil {
			t.Fatal(err)
		}
		return len(there.Status.Conditions) == 1 && strings.Count(there.Status.Conditions[0].Message, " ") == len(w.Members) &&
			strings.Contains(there.Status.Conditions[0].Message, string(w.isCopied(one, "a").UID))
	}
	eventually(t, "the status has all", says)
	sent := (&sentTo{}).by(p)
	for _, cp := range w.Members {
		eventually(t, "the cache has the copy", func() bool { return p.knows(cp, w.isCopied(cp, "a")) })
	}
	isQuiet := func() bool {
		work.take()
		return sent.isQuiet(p) && len(work.take()) == 0
	}
	alone := map[fleet.ClusterName]bool{fleet.ClusterName(one.Name): true}
	eventually(t, "nothing is asked any more", isQuiet)
	patched := []string{"PATCH /api/v1/namespaces/" + w.ns + "/configmaps/" + copyOf("a")}

	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Data["value"] = "drifted" })
	w.says(one, copyOf("a"), "1")
	eventually(t, "all is at rest", p.isAtRest)
	if diff := cmp.Diff(map[string][]string{hostOf(one): patched}, sent.changes(hostOf(one))); diff != "" {
		t.Errorf("a dependent has drifted: the requests to each cluster (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff(alone, work.take()); diff != "" {
		t.Errorf("a dependent has drifted: the clusters in which there was work (-want, +got):\n%s", diff)
	}
	eventually(t, "the cache has the copy", func() bool { return p.knows(one, w.isCopied(one, "a")) })
	eventually(t, "nothing is asked any more", isQuiet)

	w.remove(one, copyOf("a"))
	w.isCopied(one, "a")
	eventually(t, "the status has the new one", says)
	eventually(t, "all is at rest", p.isAtRest)
	want := map[string][]string{hostOf(one): patched, hostOf(w.Local): {"PATCH /apis/apps/v1/namespaces/" + w.ns + "/deployments/a/status"}}
	if diff := cmp.Diff(want, sent.changes(hostOf(one))); diff != "" {
		t.Errorf("a dependent was deleted: the requests to each cluster (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff(alone, work.take()); diff != "" {
		t.Errorf("a dependent was deleted: the clusters in which there was work (-want, +got):\n%s", diff)
	}
}

// worked are the clusters in which there was work, as Desired was called for them.
type worked struct {
	mu sync.Mutex // guards in
	in map[fleet.ClusterName]bool
}

func (w *worked) note(name fleet.ClusterName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in[name] = true
}

// take returns the clusters since the last time.
func (w *worked) take() map[fleet.ClusterName]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.in
	w.in = map[fleet.ClusterName]bool{}
	return in
}

// deployment returns an owner for sayingUIDs.
func (w *world) deployment(name string) *appsv1.Deployment {
	app := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metaOf(w.ns, name), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: app},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "nginx"}}},
		},
	}}
}

// TestNothingIsAskedForInTheSteadyState, of any cluster: neither about what is as it should be, nor by looks at what no event tells of.
func TestNothingIsAskedForInTheSteadyState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	r := w.sayingUIDs()
	dependents.Hasten(r, 300*time.Millisecond)
	p := w.run(r)
	sent := (&sentTo{}).by(p)
	w.create(w.Local, w.deployment("a"))
	for _, cp := range w.Members {
		eventually(t, "the cache has the copy", func() bool { return p.knows(cp, w.isCopied(cp, "a")) })
	}
	eventually(t, "the status has all", func() bool {
		there := &appsv1.Deployment{}
		err := w.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, there)
		return err == nil && len(there.Status.Conditions) == 1 && strings.Count(there.Status.Conditions[0].Message, " ") == len(w.Members)
	})
	eventually(t, "nothing is asked any more", func() bool { return sent.isQuiet(p) })
	<-time.After(5 * time.Second)
	if asked := sent.take(); len(asked) > 0 {
		t.Errorf("while nothing changes, there were the requests %v", asked)
	}
}

// sayingUIDs is a reconciler of Deployments with a ConfigMap in each member. The status has the UIDs of these.
func (w *world) sayingUIDs() *dependents.Reconciler[*appsv1.Deployment] {
	return &dependents.Reconciler[*appsv1.Deployment]{
		Fleet: fleetName, Name: controller, OwnersIn: mcowner.Clusters{Local: true}, DependentsIn: mcowner.Clusters{Members: everywhere},
		Kinds: []client.Object{&corev1.ConfigMap{}}, Sweep: orphans.Sweep{Interval: time.Hour},
		Desired: func(_ context.Context, owner *appsv1.Deployment, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(w.ns, copyOf(owner.Name)), Data: map[string]string{"value": "1"}}}, nil
		},
		Status: func(_ context.Context, owner *appsv1.Deployment, results []dependents.Result) error {
			uids := ""
			for _, r := range results {
				for _, object := range r.Objects {
					uids += " " + string(object.UID)
				}
			}
			owner.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Spread", Status: corev1.ConditionTrue, Message: uids}}
			return nil
		},
	}
}

// TestTwoControllersThatWriteTheStatusOfAnOwnerComeToRest, and each keeps the condition of the other.
func TestTwoControllersThatWriteTheStatusOfAnOwnerComeToRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	counting := func(name string) *dependents.Reconciler[*appsv1.Deployment] {
		r := w.sayingUIDs()
		r.Name = name
		r.Desired = func(_ context.Context, owner *appsv1.Deployment, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metaOf(w.ns, owner.Name+"-"+name), Data: map[string]string{"of": name}}}, nil
		}
		r.Status = func(_ context.Context, owner *appsv1.Deployment, results []dependents.Result) error {
			all := slices.DeleteFunc(owner.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return string(c.Type) == name })
			s := dependents.Summarize(results)
			all = append(all, appsv1.DeploymentCondition{
				Type: appsv1.DeploymentConditionType(name), Status: corev1.ConditionTrue, Message: fmt.Sprintf("%d of %d, %d pending", s.Done, s.Targets, s.Pending),
			})
			owner.Status.Conditions = all
			slices.SortFunc(owner.Status.Conditions, func(a, b appsv1.DeploymentCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
			return nil
		}
		return r
	}
	p := w.runWith(func(mgr mcmanager.Manager) error {
		return errors.Join(counting("first").SetupWithManager(mgr), counting("second").SetupWithManager(mgr))
	})
	for n := range 5 {
		w.create(w.Local, w.deployment(fmt.Sprint("a", n)))
	}
	for n := range 5 {
		eventually(t, "both say that all is done", func() bool {
			now := &appsv1.Deployment{}
			if err := w.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: fmt.Sprint("a", n)}, now); err != nil {
				t.Fatal(err)
			}
			return len(now.Status.Conditions) == 2 && !slices.ContainsFunc(now.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
				return c.Message != "2 of 2, 0 pending"
			})
		})
	}
	eventually(t, "nothing is written any more", p.isAtRest)
	if n := p.power.writes.Load(); n > 300 { // 80 are needed; each answer to the other's status is one more
		t.Errorf("%d writes were made for 5 owners with 20 dependents", n)
	}
}

// TestAConditionThatAnotherSetsMeanwhileIsKept: the status is read again before it is written.
func TestAConditionThatAnotherSetsMeanwhileIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.sayingUIDs()
	said := r.Status
	r.Status = func(ctx context.Context, owner *appsv1.Deployment, results []dependents.Result) error {
		others := slices.DeleteFunc(slices.Clone(owner.Status.Conditions), func(c appsv1.DeploymentCondition) bool { return c.Type == "Spread" })
		err := said(ctx, owner, results)
		owner.Status.Conditions = append(owner.Status.Conditions, others...)
		return err
	}
	p := w.run(r)
	set := sync.OnceFunc(func() {
		now := &appsv1.Deployment{}
		err := w.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, now)
		now.Status.Conditions = append(now.Status.Conditions, appsv1.DeploymentCondition{Type: "Other", Status: corev1.ConditionTrue})
		if err = errors.Join(err, w.Local.Client().Status().Update(t.Context(), now)); err != nil {
			t.Error(err)
		}
	})
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
		if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/deployments/a/status") {
			set()
		}
		return nil
	}
	p.power.tap.Store(&tap)
	w.create(w.Local, w.deployment("a"))
	w.isCopied(w.Members[0], "a")
	eventually(t, "nothing is written any more", p.isAtRest)
	eventually(t, "both conditions are there", func() bool {
		now := &appsv1.Deployment{}
		if err := w.Local.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "a"}, now); err != nil {
			t.Fatal(err)
		}
		return len(now.Status.Conditions) == 2
	})
}

// TestOwnWritesAreNoNews: an owner is looked at for its creation, and not for what is noted on it.
func TestOwnWritesAreNoNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	var looks atomic.Int32
	targets := r.Targets
	r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Namespace == w.ns {
			looks.Add(1)
		}
		return targets(ctx, owner)
	}
	p := w.run(r)
	p.is(one, "Ready")
	eventually(t, "all is at rest", p.isAtRest)
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	eventually(t, "all is at rest", p.isAtRest)
	w.create(w.Local, w.owner("b", one.Name)) // whose events come after those of the first
	w.isCopied(one, "b")
	eventually(t, "all is at rest", p.isAtRest)
	if n := looks.Load(); n != 2 {
		t.Errorf("two owners were looked at %d times", n)
	}
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) {
		for key := range cm.Annotations {
			if strings.HasSuffix(key, "/placed-in") {
				delete(cm.Annotations, key)
			}
		}
	})
	eventually(t, "the record is whole again, though others took it", func() bool {
		for key := range w.mustGet(w.Local, "a").Annotations {
			if strings.HasSuffix(key, "/placed-in") {
				return true
			}
		}
		return false
	})
}

// TestAfterARestart nothing is asked about dependents that are as they should be, and what others did meanwhile is undone.
func TestAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	reconciler := func() *dependents.Reconciler[*corev1.ConfigMap] {
		r := w.spread()
		r.Kinds = []client.Object{&corev1.ConfigMap{}, &corev1.Service{}, &corev1.Pod{}}
		r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
		r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
			meta := metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name), Labels: map[string]string{"ours": "yes"}}
			quota := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"namespace": owner.Namespace, "name": copyOf(owner.Name)},
				"spec":     map[string]any{"hard": map[string]any{"pods": "10"}},
			}}
			quota.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ResourceQuota"))
			return []client.Object{
				&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"version": "1.10", "empty": ""}},
				&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}, ExternalIPs: []string{"10.0.0.1", "10.0.0.2"}}},
				quota,
			}, nil
		}
		return r
	}
	start := func() (*process, *reports, *requests) {
		r := reconciler()
		all := reportsOf(t, r)
		p := w.run(r)
		return p, all, requestsOf(p, w.ns, "")
	}
	p, all, _ := start()
	w.create(w.Local, w.owner("a", one.Name))
	done := func(all *reports, state ...dependents.State) func() bool {
		return func() bool {
			result, ok := all.first("a")
			if !ok || result.Err != nil || len(result.Objects) != 3 {
				return false
			}
			for _, o := range result.Objects {
				if !slices.Contains(state, o.State) {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "the dependents are there", done(all, dependents.Applied, dependents.Unchanged))
	p.stop()

	p, all, sent := start()
	eventually(t, "all was looked at", done(all, dependents.Unchanged))
	eventually(t, "all is at rest", p.isAtRest)
	for _, req := range sent.sorted() {
		if strings.Contains(req, copyOf("a")) || strings.HasPrefix(req, "POST") && !strings.Contains(req, "events") {
			t.Errorf("after a restart there was the request %s", req)
		}
	}
	p.stop()

	key := client.ObjectKey{Namespace: w.ns, Name: copyOf("a")}
	drift := func(obj client.Object, patch string) {
		t.Helper()
		obj.SetNamespace(key.Namespace)
		obj.SetName(key.Name)
		if err := one.Client().Patch(t.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	drifts := func() {
		drift(&corev1.ConfigMap{}, `{"data":{"version":"1.1"}}`)
		drift(&corev1.Service{}, `{"metadata":{"labels":{"ours":null}},"spec":{"externalIPs":["10.0.0.1"]}}`)
		drift(&corev1.ResourceQuota{}, `{"spec":{"hard":{"pods":"11"}}}`)
	}
	isUndone := func() bool {
		cm, svc, quota := &corev1.ConfigMap{}, &corev1.Service{}, &corev1.ResourceQuota{}
		for _, obj := range []client.Object{cm, svc, quota} {
			if err := one.Client().Get(t.Context(), key, obj); err != nil {
				t.Fatal(err)
			}
		}
		pods := quota.Spec.Hard["pods"]
		return cm.Data["version"] == "1.10" && svc.Labels["ours"] == "yes" && len(svc.Spec.ExternalIPs) == 2 && pods.Value() == 10
	}
	drifts()
	p, all, _ = start()
	eventually(t, "what others did meanwhile is undone", isUndone)
	eventually(t, "all was looked at", done(all, dependents.Applied, dependents.Drifted, dependents.Unchanged))
	eventually(t, "all is at rest", p.isAtRest)
	drifts()
	eventually(t, "what others do now is undone", isUndone)
}

// TestWhatGoWritesOfFieldsThatWereLeftOut is not applied, and so neither written again after a restart, nor fought for.
func TestWhatGoWritesOfFieldsThatWereLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	start := func() (*process, *reports, *requests) {
		r := w.spread()
		r.Kinds = []client.Object{&corev1.Service{}, &rbacv1.RoleBinding{}, &corev1.Secret{}}
		r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
			meta := metav1.ObjectMeta{Namespace: owner.Namespace, Name: copyOf(owner.Name)}
			return []client.Object{
				&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
				&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}},
				&corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"value": owner.Data["value"], "only-" + owner.Data["value"]: "yes"}},
			}, nil
		}
		all := reportsOf(t, r)
		p := w.run(r)
		return p, all, requestsOf(p, w.ns, "")
	}
	are := func(all *reports, state ...dependents.State) func() bool {
		return func() bool {
			result, _ := all.first("a")
			return result.Err == nil && len(result.Objects) == 3 && !slices.ContainsFunc(result.Objects, func(o dependents.ObjectResult) bool {
				return !slices.Contains(state, o.State)
			})
		}
	}
	p, all, _ := start()
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the dependents are there", are(all, dependents.Applied, dependents.Unchanged))
	p.stop()

	p, all, sent := start()
	eventually(t, "all was looked at", are(all, dependents.Unchanged))
	eventually(t, "all is at rest", p.isAtRest)
	for _, req := range sent.sorted() {
		if strings.Contains(req, copyOf("a")) {
			t.Errorf("after a restart there was the request %s", req)
		}
	}
	key, service := client.ObjectKey{Namespace: w.ns, Name: copyOf("a")}, &corev1.Service{}
	if err := one.Client().Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(8080)
	if err := one.Client().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what somebody has set that was left out stays", func() bool {
		result, _ := all.first("a")
		return result.Objects[0].Object.GetResourceVersion() == service.ResourceVersion && are(all, dependents.Unchanged)()
	})
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	secret := &corev1.Secret{}
	eventually(t, "the Secret has what is desired now, and nothing else", func() bool {
		err := one.Client().Get(t.Context(), key, secret)
		return err == nil && cmp.Equal(secret.Data, map[string][]byte{"value": []byte("2"), "only-2": []byte("yes")})
	})
}

// TestResultsOfObjects say what was done about each, and since when.
func TestResultsOfObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	all := reportsOf(t, r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "it is there", func() bool { return all.object("a").UID != "" })
	eventually(t, "all is at rest", p.isAtRest)
	first, cm := all.is("a", dependents.Applied, dependents.Unchanged), w.mustGet(one, copyOf("a"))
	if first.Kind != corev1.SchemeGroupVersion.WithKind("ConfigMap") || first.Key != client.ObjectKeyFromObject(cm) || first.UID != cm.UID || first.Since.IsZero() {
		t.Errorf("the result is %v", first)
	}
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Labels["more"] = "label" }) // which is nobody's business
	all.is("a", dependents.Unchanged)
	unchanged := all.object("a").Since
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { cm.Labels["more"] = "again" })
	eventually(t, "the label was seen", func() bool { return all.object("a").Object.GetLabels()["more"] == "again" })
	if got := all.object("a"); got.State != dependents.Unchanged || !got.Since.Equal(unchanged) {
		t.Errorf("it is %s since %s, before it was Unchanged since %s", got.State, got.Since, unchanged)
	}
	result, _ := all.first("a")
	since := result.Since
	w.remove(one, copyOf("a"))
	eventually(t, "there is another one", func() bool { got := all.object("a"); return got.UID != "" && got.UID != cm.UID && got.Err == nil })
	if result, _ = all.first("a"); !result.Since.Equal(since) || !result.Targeted || result.Cluster != "member-1" {
		t.Errorf("the result is %v, and before nothing was in the way since %s", result, since)
	}
	one.Stop(t)
	eventually(t, "the result says since when the member is away", func() bool {
		result, _ := all.first("a")
		status, _ := p.GetFleet().Status("member-1")
		return result.Err != nil && result.Since.Equal(status.Since) && len(result.Objects) == 1
	})
	one.Restart(t)
}

// TestResultsOfWhatIsNotLookedAt have what is known of the objects, although it is not known what is desired.
func TestResultsOfWhatIsNotLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	desired := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		if owner.Data["value"] == "unknown" {
			return nil, dependents.ErrPending
		}
		return desired(ctx, owner, target)
	}
	all := reportsOf(t, r)
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	before := all.is("a", dependents.Applied, dependents.Unchanged)
	eventually(t, "the cache has it", func() bool { return p.knows(one, w.mustGet(one, copyOf("a"))) })
	w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "unknown" })
	if now := all.is("a", dependents.Waiting); now.Kind != before.Kind || now.Key != before.Key || now.UID != before.UID {
		t.Errorf("it is %v, and was %v", now, before)
	}
}

var errNotAllowed = errors.New("this kind is not allowed")

// TestKindsThatAreKnownLater are watched, changed back, and removed while it runs; those that are not allowed are said.
func TestKindsThatAreKnownLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Kinds = nil
	r.MoreKinds = func(gvk schema.GroupVersionKind) error {
		if gvk.Kind == "Secret" {
			return errNotAllowed
		}
		return nil
	}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		var all []client.Object
		for kind := range strings.FieldsSeq(owner.Data["value"]) {
			obj := &unstructured.Unstructured{Object: map[string]any{}}
			obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			obj.SetNamespace(owner.Namespace)
			obj.SetName(copyOf(owner.Name))
			obj.SetLabels(map[string]string{"ours": "yes"})
			all = append(all, obj)
		}
		return all, nil
	}
	all := reportsOf(t, r)
	w.run(r)
	owner := w.owner("a", one.Name)
	owner.Data["value"] = "ConfigMap"
	w.create(w.Local, owner)
	w.isCopied(one, "a")
	want := func(kinds string) { w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = kinds }) }
	want("ConfigMap ServiceAccount Secret")
	account := &corev1.ServiceAccount{}
	there := func() bool {
		return one.Client().Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: copyOf("a")}, account) == nil
	}
	eventually(t, "there is a ServiceAccount", there)
	eventually(t, "the result says that Secrets are not allowed", func() bool {
		result, _ := all.first("a")
		return len(result.Objects) == 3 && result.Objects[2].State == dependents.Failed && strings.Contains(result.Objects[2].Err.Error(), errNotAllowed.Error()) &&
			result.Objects[2].Kind.Kind == "Secret" && result.Objects[1].Err == nil && result.Err != nil
	})
	account.Labels["ours"] = "no"
	if err := one.Client().Update(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ServiceAccount is changed back", func() bool { return there() && account.Labels["ours"] == "yes" })
	want("ServiceAccount")
	w.isGone(one, copyOf("a"))
	w.remove(w.Local, "a")
	eventually(t, "the ServiceAccount is gone", func() bool { return !there() })
	w.isGone(w.Local, "a")
}

// TestOwnersWithoutAType are read as unstructured objects, of the kind that Owner says.
func TestOwnersWithoutAType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	proto := &unstructured.Unstructured{}
	proto.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ReplicationController"))
	r := &dependents.Reconciler[*unstructured.Unstructured]{
		Fleet: fleetName, Name: controller, Owner: proto,
		OwnersIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}},
		Desired: func(_ context.Context, owner *unstructured.Unstructured, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: copyOf(owner.GetName())},
				Data:       map[string]string{"value": owner.GetLabels()["value"], "kind": owner.GetKind()},
			}}, nil
		},
		Status: func(_ context.Context, owner *unstructured.Unstructured, results []dependents.Result) error {
			return unstructured.SetNestedField(owner.Object, int64(len(results[0].Dependents())), "status", "replicas")
		},
		Sweep: orphans.Sweep{Interval: time.Hour},
	}
	p := w.runWith(func(mgr mcmanager.Manager) error {
		without := *r
		without.Owner, without.Name = nil, "without"
		if err := without.SetupWithManager(mgr); err == nil || !strings.Contains(err.Error(), "the field Owner") {
			t.Errorf("without Owner, SetupWithManager returns %v", err)
		}
		return r.SetupWithManager(mgr)
	})
	owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "a", Labels: map[string]string{"value": "1"}}, Spec: corev1.ReplicationControllerSpec{
		Selector: map[string]string{"app": "a"},
		Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
	}}
	w.create(w.Local, owner)
	if cm := w.isCopied(one, "a"); cm.Data["kind"] != "ReplicationController" || cm.Data["value"] != "1" {
		t.Errorf("the copy has %v", cm.Data)
	}
	read := func() {
		if err := w.Local.Client().Get(t.Context(), client.ObjectKeyFromObject(owner), owner); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the status counts the dependents", func() bool { read(); return owner.Status.Replicas == 1 })
	eventually(t, "all is at rest", p.isAtRest)
	read()
	owner.Labels["value"] = "2"
	if err := w.Local.Client().Update(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy follows", func() bool { return w.mustGet(one, copyOf("a")).Data["value"] == "2" })
	if err := w.Local.Client().Delete(t.Context(), owner, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	w.isGone(one, copyOf("a"))
}
