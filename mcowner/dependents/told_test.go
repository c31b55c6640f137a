package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestADependentWaitsForANamespaceThatGoes: no right is missing.
func TestADependentWaitsForANamespaceThatGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	going := one.CreateNamespace(t) // nobody finishes its deletion
	if err := one.Client().Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}}); err != nil {
		t.Fatal(err)
	}
	var results latest
	r := w.spread()
	r.Status = results.note
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: going, Name: owner.Name}}}, nil
	}
	w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	eventually(t, "the dependent waits", func() bool { return slices.Equal(results.states("a", one), []dependents.State{dependents.Waiting}) })
	if err := results.of("a", one).Err; err == nil || !strings.Contains(err.Error(), "being terminated") {
		t.Errorf("the result does not say why: %v", err)
	}
	w.told(w.Local, "a", dependents.EventTerminating, going)
	for _, other := range []string{dependents.EventForbidden, dependents.EventFailed} {
		if w.has(w.Local, "a", other, "") {
			t.Errorf("there is an event %s", other)
		}
	}
}

// TestAMemberThatIsStillBeingConnectedIsNoNews: at each start of the program, all are. One that cannot be connected is news.
func TestAMemberThatIsStillBeingConnectedIsNoNews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	slow, absent := w.Members[0], w.Members[1]
	absent.Stop(t)
	w.connectTimeout = time.Hour
	var results latest
	r := w.spread()
	r.Status = results.note
	may := make(chan struct{})
	w.Members = nil // reported below
	p := w.run(r)
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // there is nothing to do with the answer
		if req.URL.Host == hostOf(slow) {
			<-may
		}
		return nil
	}
	p.power.tap.Store(&tap)
	p.add(slow, slow.Config())
	w.create(w.Local, w.owner("a", slow.Name, absent.Name))
	eventually(t, "the result says that the member is not ready", func() bool { return errors.Is(results.of("a", slow).Err, fleet.ErrNotReady) })
	p.add(absent, absent.Config())
	w.told(w.Local, "a", dependents.EventClusterNotReady, `"`+absent.Name+`": `+fleet.ErrNotReady.Error())
	close(may)
	w.told(w.Local, "a", dependents.EventCreated, slow.Name) // which comes after what was told before
	if w.has(w.Local, "a", dependents.EventClusterNotReady, `"`+slow.Name+`": `+fleet.ErrNotReady.Error()) {
		t.Error("an event says that a member was not connected yet")
	}
	absent.Restart(t)
	w.isCopied(absent, "a")
}

// notes returns those of the events on an object.
func (w *world) notes(cp interface{ Client() client.Client }, name string) []string {
	w.t.Helper()
	list := &eventsv1.EventList{}
	if err := cp.Client().List(w.t.Context(), list, client.InNamespace(w.ns), client.MatchingFields{"regarding.name": name}); err != nil {
		w.t.Fatal(err)
	}
	notes := make([]string, len(list.Items))
	for i, e := range list.Items {
		notes[i] = e.Note
	}
	return notes
}

// TestAKindOfOwnersWithoutStatusIsToldOnce on each: ConfigMaps have none.
func TestAKindOfOwnersWithoutStatusIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.Status = func(_ context.Context, owner *corev1.ConfigMap, _ []dependents.Result) error {
		owner.Annotations = maps.Clone(owner.Annotations)
		owner.Annotations["status"] = owner.Data["value"]
		return nil
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name))
	w.told(w.Local, "a", dependents.EventFailed, "no status subresource")
	for _, value := range []string{"2", "3"} {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		eventually(t, "the copy follows", func() bool { return w.isCopied(one, "a").Data["value"] == value })
	}
	eventually(t, "nothing is written any more", p.isAtRest)
	told := 0
	for _, note := range w.notes(w.Local, "a") {
		if strings.Contains(note, "no status subresource") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it was told %d times", told)
	}
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
}

// TestAKindOfOwnersWithoutStatusIsAnErrorOfTheSetUp where that can be known: of owners in the local cluster, once it serves the kind.
func TestAKindOfOwnersWithoutStatusIsAnErrorOfTheSetUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gear"}
	owner := &unstructured.Unstructured{}
	owner.SetGroupVersionKind(kind)
	r := &dependents.Reconciler[*unstructured.Unstructured]{
		Fleet: fleetName, Name: controller, Owner: owner, OwnersIn: mcowner.Clusters{Local: true}, Kinds: []client.Object{&corev1.ConfigMap{}},
		Desired: func(context.Context, *unstructured.Unstructured, dependents.Target) ([]client.Object, error) {
			return nil, nil
		},
		Status: func(context.Context, *unstructured.Unstructured, []dependents.Result) error { return nil },
	}
	setUp := func() error {
		mgr, err := mcmanager.New(w.Local.Config(), &fleettest.Provider{}, mcmanager.Options{
			Logger: logger(t), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.SetupWithManager(mgr)
	}
	if err := setUp(); err != nil {
		t.Errorf("before the kind is there: %v", err)
	}
	crd := crdOf(kind, "gears")
	w.create(w.Local, crd)
	eventually(t, "the set-up says so", func() bool {
		err := setUp()
		return err != nil && strings.Contains(err.Error(), "no status subresource")
	})
	r.OwnersIn = mcowner.Clusters{Members: everywhere}
	if err := setUp(); err != nil {
		t.Errorf("of owners in members, which are not known yet: %v", err)
	}
	r.OwnersIn = mcowner.Clusters{Local: true}
	status := r.Status
	r.Status = nil
	if err := setUp(); err != nil {
		t.Errorf("without the field Status: %v", err)
	}
	r.Status = status
	add := []byte(`[{"op": "add", "path": "/spec/versions/0/subresources", "value": {"status": {}}}]`)
	if err := w.Local.Client().Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, add)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the set-up is content", func() bool { return setUp() == nil })
}

// TestATenantIsNotToldTheNamesOfAnother, where owners have the rights of users.
func TestATenantIsNotToldTheNamesOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var results latest
	r := w.spread()
	r.OwnersIn, r.DependentsIn = mcowner.Clusters{}, mcowner.Clusters{Local: true}
	r.User = func(mcreconcile.Request) string { return "" }
	r.Status = results.note
	r.Targets = func(_ context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if owner.Annotations["to"] == "" { // such as kube-root-ca.crt
			return nil, nil
		}
		return []mcreconcile.ClusterName{mcreconcile.LocalCluster}, nil
	}
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		same := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "same"}}
		same.Annotations = map[string]string{dependents.ConflictAnnotation: owner.Data["policy"]}
		return []client.Object{same}, nil
	}
	w.run(r)
	w.create(one, w.owner("secret-name", "local"))
	eventually(t, "the first has the object", func() bool { return w.get(w.Local, "same") != nil })
	for _, policy := range []dependents.ConflictPolicy{dependents.Fail, dependents.Adopt} {
		name := "second-" + strings.ToLower(string(policy))
		second := w.owner(name, "local")
		second.Data["policy"] = string(policy)
		w.create(two, second)
		w.told(two, name, dependents.EventConflict, "another cluster")
		conflict, ok := errors.AsType[*dependents.ConflictError](results.in(name, mcreconcile.LocalCluster).Err)
		if !ok {
			t.Fatalf("the result has no conflict: %v", results.in(name, mcreconcile.LocalCluster).Err)
		}
		for _, text := range append(w.notes(two, name), conflict.Error()) {
			if strings.Contains(text, "secret-name") || strings.Contains(text, one.Name) {
				t.Errorf("the tenant was told: %s", text)
			}
		}
	}
}

// TestATenantIsNotToldTheNamesOfAnotherOfItsCluster: each namespace of it has a user of its own.
func TestATenantIsNotToldTheNamesOfAnotherOfItsCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one, secret := w.Members[0], w.Local.CreateNamespace(t)
	var results latest
	r := w.spread()
	r.User = func(owner mcreconcile.Request) string { return "user-of-" + owner.Namespace }
	r.Status = results.note
	r.Desired = func(_ context.Context, owner *corev1.ConfigMap, _ dependents.Target) ([]client.Object, error) {
		same := &corev1.ConfigMap{ObjectMeta: metaOf(w.ns, "same")}
		same.Annotations = map[string]string{dependents.ConflictAnnotation: owner.Data["policy"]}
		return []client.Object{same}, nil
	}
	w.grantCopies(one, "user-of-"+w.ns)
	w.grantCopies(one, "user-of-"+secret)
	w.run(r)
	first := w.owner("secret-name", one.Name)
	first.Namespace = secret
	w.create(w.Local, first)
	eventually(t, "the first has the object", func() bool { return w.get(one, "same") != nil })
	before := w.mustGet(one, "same")
	for _, policy := range []dependents.ConflictPolicy{dependents.Fail, dependents.Adopt} {
		name := "second-" + strings.ToLower(string(policy))
		second := w.owner(name, one.Name)
		second.Data["policy"] = string(policy)
		w.create(w.Local, second)
		w.told(w.Local, name, dependents.EventConflict, "same")
		var result dependents.Result
		eventually(t, "the result has the conflict", func() bool {
			result = results.of(name, one)
			_, is := errors.AsType[*dependents.ConflictError](result.Err)
			return is
		})
		texts := append(w.notes(w.Local, name), result.Err.Error())
		for _, object := range result.Objects {
			texts = append(texts, fmt.Sprint(object.Err))
		}
		var conditions []metav1.Condition
		dependents.Summarize([]dependents.Result{result}).SetConditions(&conditions, 1)
		for _, condition := range conditions {
			texts = append(texts, condition.Message)
		}
		for _, text := range texts {
			if strings.Contains(text, "secret-name") || strings.Contains(text, secret) {
				t.Errorf("the tenant was told: %s", text)
			}
		}
	}
	if now := w.mustGet(one, "same"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("another tenant has changed the object: %+v", now)
	}
}
