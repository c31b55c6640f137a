package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// made returns a namespace that was created for dependents.
func made(t *testing.T, cp *mctest.ControlPlane) *corev1.Namespace {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "made-", Annotations: map[string]string{mcowner.CreatedByAnnotation: "fleet"},
	}}
	if err := cp.Client().Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns
}

// listed counts the lists of what is in a namespace, and those that nobody had waited for.
type listed struct {
	http.RoundTripper

	namespace             string
	waits, lists, hurried *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (l listed) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.Contains(req.URL.Path, "/namespaces/"+l.namespace+"/") {
		if l.lists.Add(1) > l.waits.Load() {
			l.hurried.Add(1)
		}
	}
	return l.RoundTripper.RoundTrip(req)
}

// TestEachListOfANamespaceWaitsForTheLimit: there are as many as kinds, and before that it is asked for these. Without one, nothing is asked, and the namespace stays.
func TestEachListOfANamespaceWaitsForTheLimit(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{}).Local
	var waits, lists, hurried atomic.Int32
	ns := made(t, cp)
	cfg := cp.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return listed{through, ns.Name, &waits, &lists, &hurried}
	})
	member, err := cluster.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	at, k := Session{ID: mcowner.ByName("member"), Cluster: member}, Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}
	takeAway := func(pace func(context.Context) error) (bool, error) {
		return TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{Before: pace}, at.Cluster.GetClient(), at, k, ns, nil, metav1.DeletePropagationBackground)
	}

	full := errors.New("the limit is used up")
	deleted, err := takeAway(func(context.Context) error { return full })
	if deleted || !errors.Is(err, full) || lists.Load() != 0 {
		t.Errorf("without a place below the limit: deleted %t, %v, after %d lists", deleted, err, lists.Load())
	}
	if err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(ns), ns); err != nil || ns.DeletionTimestamp != nil {
		t.Errorf("the namespace does not stay: %v, deleted %v", err, ns.DeletionTimestamp)
	}

	deleted, err = takeAway(func(context.Context) error { waits.Add(1); return nil })
	if !deleted || err != nil {
		t.Errorf("an empty namespace: deleted %t, %v", deleted, err)
	}
	if n := lists.Load(); n < 10 || n != waits.Load()-1 || hurried.Load() != 0 {
		t.Errorf("%d lists waited %d times, %d of them not before they were sent", n, waits.Load(), hurried.Load())
	}
}

// misled answers in the place of a cluster with a page, as a gateway does that knows no way to it.
type misled struct {
	http.RoundTripper

	path string
}

// RoundTrip implements http.RoundTripper.
func (m misled) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path != m.path {
		return m.RoundTripper.RoundTrip(req)
	}
	answer := httptest.NewRecorder()
	http.NotFound(answer, req)
	return answer.Result(), nil
}

// TestANamespaceOfWhichAGatewayHidesTheKindsIsNotEmpty: discovery takes a page for a cluster without Kubernetes' own kinds.
func TestANamespaceOfWhichAGatewayHidesTheKindsIsNotEmpty(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := made(t, cp)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "theirs"}}
	if err := cp.Client().Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}
	for name, path := range map[string]string{"their list": "/api/v1/namespaces/" + ns.Name + "/configmaps", "their kinds": "/api"} {
		cfg := cp.Config()
		cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return misled{through, path} })
		member, err := cluster.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		at := Session{ID: mcowner.ByName("member"), Cluster: member}
		deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, cp.Client(), at, k, ns, nil, metav1.DeletePropagationBackground)
		if deleted {
			t.Errorf("%s: the namespace is deleted, %v", name, err)
		}
	}
}

// namespacesIn returns a session in a control plane, as a member of its own, and the kind of namespaces.
func namespacesIn(t *testing.T, cp *mctest.ControlPlane) (Session, Kind) {
	t.Helper()
	member, err := cluster.New(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	return Session{ID: mcowner.ByName("member"), Cluster: member}, Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}
}

// TestWhatIsLeftInANamespaceIsNotTold: it may be another tenant's.
func TestWhatIsLeftInANamespaceIsNotTold(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := made(t, cp)
	going := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "acme-2027", Finalizers: []string{"example.com/goes"}}}
	if err := cp.Client().Create(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client().Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	at, k := namespacesIn(t, cp)
	_, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, at.Cluster.GetClient(), at, k, ns, nil, metav1.DeletePropagationBackground)
	if !errors.Is(err, ErrEmptying) || !strings.Contains(err.Error(), "ConfigMap") || strings.Contains(err.Error(), going.Name) {
		t.Errorf("the error is %v, want one with the kind of what is left, and not with its name", err)
	}
}

// TestWhatHasAControllerGoesWithThat, whichever of them is listed first. With what stays, or what the garbage collector does not find, it stays.
func TestWhatHasAControllerGoesWithThat(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	at, k := namespacesIn(t, cp)
	by := func(apiVersion, kind string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "controller", UID: uid, Controller: new(true)}}
	}
	create := func(t *testing.T, obj client.Object, controllers []metav1.OwnerReference) client.Object {
		t.Helper()
		obj.SetOwnerReferences(controllers)
		if err := cp.Client().Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	for name, tc := range map[string]struct {
		put   func(t *testing.T, of metav1.ObjectMeta)
		stays bool
	}{
		"what is being deleted": {put: func(t *testing.T, of metav1.ObjectMeta) {
			t.Helper()
			of.Finalizers = []string{"example.com/goes"}
			root := create(t, &corev1.PersistentVolumeClaim{ObjectMeta: of, Spec: claim}, nil)
			of.Finalizers = nil
			last := create(t, &corev1.Secret{ObjectMeta: of}, by("v1", "PersistentVolumeClaim", root.GetUID()))
			create(t, &corev1.ConfigMap{ObjectMeta: of}, by("v1", "Secret", last.GetUID()))
			create(t, &corev1.ServiceAccount{ObjectMeta: of}, by("v1", "Secret", last.GetUID()))
			if err := cp.Client().Delete(t.Context(), root); err != nil {
				t.Fatal(err)
			}
		}},
		"what is gone": {put: func(t *testing.T, of metav1.ObjectMeta) {
			t.Helper()
			last := create(t, &corev1.Secret{ObjectMeta: of}, by("apps/v1", "Deployment", "gone"))
			create(t, &corev1.ConfigMap{ObjectMeta: of}, by("v1", "Secret", last.GetUID()))
		}},
		"what Kubernetes puts there": {stays: true, put: func(t *testing.T, of metav1.ObjectMeta) {
			t.Helper()
			of.Name = "kube-root-ca.crt"
			root := create(t, &corev1.ConfigMap{ObjectMeta: of}, nil)
			of.Name = "theirs"
			create(t, &corev1.Secret{ObjectMeta: of}, by("v1", "ConfigMap", root.GetUID()))
		}},
		"each other": {stays: true, put: func(t *testing.T, of metav1.ObjectMeta) {
			t.Helper()
			one := create(t, &corev1.ConfigMap{ObjectMeta: of}, by("v1", "Secret", "not yet"))
			other := create(t, &corev1.Secret{ObjectMeta: of}, by("v1", "ConfigMap", one.GetUID()))
			one.SetOwnerReferences(by("v1", "Secret", other.GetUID()))
			if err := cp.Client().Update(t.Context(), one); err != nil {
				t.Fatal(err)
			}
		}},
		"what is of a version that is not served": {stays: true, put: func(t *testing.T, of metav1.ObjectMeta) {
			t.Helper()
			create(t, &corev1.ConfigMap{ObjectMeta: of}, by("apps/v1beta1", "Deployment", "gone"))
		}},
		"a record, which is not looked at": {stays: true, put: func(t *testing.T, of metav1.ObjectMeta) {
			t.Helper()
			create(t, &corev1.ConfigMap{ObjectMeta: of}, by("events.k8s.io/v1", "Event", "there"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := made(t, cp)
			tc.put(t, metav1.ObjectMeta{Namespace: ns.Name, Name: "theirs"})
			deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, at.Cluster.GetClient(), at, k, ns, nil, metav1.DeletePropagationBackground)
			if stays := err == nil; deleted || stays != tc.stays || !stays && !errors.Is(err, ErrEmptying) {
				t.Errorf("the namespace is deleted: %t, %v; want that it stays: %t", deleted, err, tc.stays)
			}
		})
	}
}

// TestANamespaceWaitsForWhatOwnersThatAreGoneHaveThere: a collector removes it. For what that leaves there, it does not wait.
func TestANamespaceWaitsForWhatOwnersThatAreGoneHaveThere(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	at, k := namespacesIn(t, cp)
	gone := mcowner.Reference{Fleet: "fleet", Cluster: "hub", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "gone", UID: "1"}
	goneToo, another, anew := gone, gone, gone
	goneToo.Name, another.Name, anew.UID = "gone-too", "another", "2"
	says := func(key, value string) func(*corev1.ConfigMap) {
		return func(cm *corev1.ConfigMap) { cm.Annotations[key] = value }
	}
	for name, tc := range map[string]struct {
		owners []mcowner.Reference
		change func(*corev1.ConfigMap)
		stays  bool
	}{
		"of one":                          {owners: []mcowner.Reference{gone}},
		"of two":                          {owners: []mcowner.Reference{gone, goneToo}},
		"of another one besides":          {owners: []mcowner.Reference{gone, another}, stays: true},
		"of one that was created anew":    {owners: []mcowner.Reference{anew}, stays: true},
		"that says that it is to stay":    {owners: []mcowner.Reference{gone}, change: says(mcowner.DeletionPolicyAnnotation, "Orphan"), stays: true},
		"that was there before":           {owners: []mcowner.Reference{gone}, change: says(mcowner.AdoptedAnnotation, "fleet"), stays: true},
		"that was, and has lost the mark": {owners: []mcowner.Reference{gone}, change: says(mcowner.DesiredAnnotation, "0123"+AdoptedSeal), stays: true},
		"with one that cannot be read":    {owners: []mcowner.Reference{gone}, change: says(goneToo.Key(), "{"), stays: true},
		"without the label": {owners: []mcowner.Reference{gone}, stays: true, change: func(cm *corev1.ConfigMap) {
			delete(cm.Labels, mcowner.FleetLabel)
		}},
		"with a native one": {owners: []mcowner.Reference{gone}, stays: true, change: func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "there", UID: "3"}}
		}},
		"of another system": {stays: true, change: func(cm *corev1.ConfigMap) {
			cm.Annotations = map[string]string{"multicluster.admiralty.io/controller-reference": `{"clusterName":"hub","apiVersion":"v1",` +
				`"kind":"ConfigMap","namespace":"default","name":"gone","uid":"1","controller":true}`}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := made(t, cp)
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "theirs"}}
			for _, owner := range tc.owners {
				if err := mcowner.SetOwnerReference(owner, cm, at.ID); err != nil {
					t.Fatal(err)
				}
			}
			if tc.change != nil {
				tc.change(cm)
			}
			if err := cp.Client().Create(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			into := Look{Gone: []mcowner.Reference{gone, goneToo}}
			deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, into, cp.Client(), at, k, ns, nil, metav1.DeletePropagationBackground)
			if stays := err == nil; deleted || stays != tc.stays || !stays && !errors.Is(err, ErrEmptying) {
				t.Errorf("the namespace is deleted: %t, %v; want that it stays: %t", deleted, err, tc.stays)
			}
		})
	}
}

// claim is of what nobody provides.
var claim = corev1.PersistentVolumeClaimSpec{
	AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
	Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
}

// TestTokensOfUsersAreNotKubernetesOwn: before Kubernetes 1.24 that made one for the account default of each namespace.
func TestTokensOfUsersAreNotKubernetesOwn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"default-token-x7k2p": true, "long-lived": false} {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		}}
		if got := isOfKubernetes(schema.GroupKind{Kind: "Secret"}, obj); got != want {
			t.Errorf("%s is Kubernetes' own: %t, want %t", name, got, want)
		}
	}
}

// TestANamespaceIsEmptyIfNoPageHasAnythingOfOthers: there may be more of what Kubernetes puts there, or is going, than one page has.
func TestANamespaceIsEmptyIfNoPageHasAnythingOfOthers(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	at, k := namespacesIn(t, cp)
	for name, last := range map[string]map[string]string{
		"Kubernetes' own": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}, "others' on the second page": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := made(t, cp)
			var group errgroup.Group
			group.SetLimit(10)
			for i := range DefaultPageSize + 1 {
				own := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{ //nolint:staticcheck // there are some still
					Namespace: ns.Name, Name: fmt.Sprintf("e-%03d", i), Labels: map[string]string{"endpoints.kubernetes.io/managed-by": "endpoint-controller"},
				}}
				if i == DefaultPageSize {
					own.Labels = last
				}
				group.Go(func() error { return cp.Client().Create(t.Context(), own) })
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, cp.Client(), at, k, ns, nil, metav1.DeletePropagationBackground)
			if want := last != nil; deleted != want || err != nil {
				t.Errorf("the namespace is deleted: %t, want %t, %v", deleted, want, err)
			}
		})
	}
}

// TestRecordsKeepNoNamespace: there may be any number of them, and they are not asked for.
func TestRecordsKeepNoNamespace(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := made(t, cp)
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "happened"}}
	event.InvolvedObject.Namespace = ns.Name
	if err := cp.Client().Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	cfg := cp.Config()
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return misled{misled{through, "/api/v1/namespaces/" + ns.Name + "/events"}, "/apis/events.k8s.io/v1/namespaces/" + ns.Name + "/events"}
	})
	member, err := cluster.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	at, k := Session{ID: mcowner.ByName("member"), Cluster: member}, Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace")}
	deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, cp.Client(), at, k, ns, nil, metav1.DeletePropagationBackground)
	if !deleted || err != nil {
		t.Errorf("the namespace is deleted: %t, %v", deleted, err)
	}
}
