package main

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// startWithAccesses runs the controller for the clusters of ClusterAccesses.
func startWithAccesses(t *testing.T, clusters int) *world {
	t.Helper()
	s := runtime.NewScheme()
	must(t, errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s), accessv1alpha1.AddToScheme(s)))
	o := accesstest.Options(t, clusters)
	o.CRDPaths, o.Scheme = []string{"crd.yaml"}, s
	f := pool.Start(t, o)
	account := f.Local.RecordRights(t, mctest.Rights{File: "rbac/central-access.yaml", Refused: map[string]string{
		"list foos.samplecontroller.k8s.io":  "no central cluster serves Foos but that of this test",
		"watch foos.samplecontroller.k8s.io": "as list",
	}, Needed: map[string]string{
		"create events.events.k8s.io in fleet": "no access of the test is one that cannot be used",
		"patch events.events.k8s.io in fleet":  "as create",
		"get configmaps in foo":                "no owner goes unseen here",
		"create configmaps in foo":             "no cluster is given up here",
		"patch configmaps in foo":              "as create",
		"get deployments.apps in foo":          "one that is there already, and not in the cache yet, is read; tests come to that now and then",
	}})
	probes := mctest.Address(t)
	mgr, err := mcmanager.New(account.Config(), &access.Provider{Namespace: "fleet"}, mcmanager.Options{
		Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: probes,
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	}, everywhere)
	must(t, err)
	must(t, mgr.AddReadyzCheck("ping", healthz.Ping))
	must(t, newController().SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return &world{Fleet: f, probes: probes}
}

// joinByManifests lets a cluster join by objects alone: a minter there, and an access with its Secret here. The worker has the rights
// of the manifest.
func (w *world) joinByManifests(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	stage.Apply(t, cp, "rbac/member.yaml")
	create(t, cp, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "foo-worker"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "foo-controller"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accesstest.Namespace, Name: accesstest.Worker}},
	})
	access := accesstest.Mint(t, w.Local, cp, "fleet", name)
	before := access.DeepCopy()
	controllerutil.AddFinalizer(access, objects.LeaveFinalizer)
	must(t, w.Local.Client().Patch(t.Context(), access, client.MergeFrom(before)))
}

// TestFoosAreServedInClustersOfAccesses is AS-6, in which each cluster is brought in by objects: no kubeconfig is anywhere. The
// program has the rights of the manifests, and no others, on either side. ClusterAccesses have the place of ServiceAccountImports.
func TestFoosAreServedInClustersOfAccesses(t *testing.T) {
	t.Parallel()
	w := startWithAccesses(t, 3)
	cluster1, cluster2, cluster3 := w.Members[0], w.Members[1], w.Members[2]
	w.joinByManifests(t, cluster1, "cluster1")
	w.joinByManifests(t, cluster2, "cluster2")

	t.Run("AS-6.1 status and events return to the right cluster", func(t *testing.T) {
		create(t, cluster1, newFoo("example-foo", "example-foo"))
		create(t, cluster2, newFoo("bar", "bar"))
		for name, of := range map[string]*mctest.ControlPlane{"example-foo": cluster1, "bar": cluster2} {
			d := w.becomes(t, name, "is there", exists)
			patch := client.MergeFrom(d.DeepCopy())
			d.Status.Replicas, d.Status.AvailableReplicas, d.Status.ReadyReplicas = 1, 1, 1
			must(t, w.Local.Client().Status().Patch(t.Context(), d, patch))
			stage.Soon(t, "the Foo has an available replica", func() bool { return getFoo(t, of, name).Status.AvailableReplicas == 1 })
			told(t, of, name, corev1.EventTypeNormal, "Synced", "foo/"+name)
		}
		if len(events(t, cluster1, "bar"))+len(events(t, cluster2, "example-foo")) > 0 {
			t.Error("events are in the wrong cluster")
		}
	})
	t.Run("AS-6.2 the tokens of a cluster do not list Secrets", func(t *testing.T) {
		for _, account := range []string{accesstest.Worker, accesstest.Minter} {
			cfg := cluster1.Config()
			cfg.CertData, cfg.KeyData = nil, nil
			cfg.BearerToken = accesstest.Token(t, cluster1, accesstest.Namespace, account, 600)
			as, err := client.New(cfg, client.Options{})
			must(t, err)
			if err := as.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
				t.Errorf("listing Secrets as the %s: %v, want that it is forbidden", account, err)
			}
		}
	})
	t.Run("AS-6.3 two Foos of one deploymentName do not fight", func(t *testing.T) {
		one := w.contend(t, cluster1, cluster2, "dup")
		w.staysAs(t, 30*time.Second, one)
	})
	t.Run("AS-6.4 a cluster joins by objects, and another leaves", func(t *testing.T) {
		w.joinByManifests(t, cluster3, "cluster3")
		create(t, cluster3, newFoo("third", "third"))
		w.becomes(t, "third", "is there", exists)
		bar := w.deployment(t, "bar")
		stage.Leave(t, w.Local, &accessv1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster2"}})
		isLetGo(t, cluster2, "bar")
		setReplicas(t, cluster1, "example-foo", 2)
		setReplicas(t, cluster3, "third", 3)
		w.becomes(t, "example-foo", "has 2 replicas", hasReplicas(2))
		w.becomes(t, "third", "has 3 replicas", hasReplicas(3))
		must(t, cluster1.Client().Delete(t.Context(), getFoo(t, cluster1, "example-foo")))
		stage.Soon(t, "its Deployment is gone", func() bool { return w.deployment(t, "example-foo") == nil })
		w.outlives(t, bar)
	})
}
