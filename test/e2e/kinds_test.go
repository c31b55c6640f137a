package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// widgets is a kind that a CRD brings.
var widgets = schema.GroupVersionKind{Group: "test.fleet-runtime.dev", Version: "v1", Kind: "Widget"}

func widgetCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + widgets.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: widgets.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Widget", Plural: "widgets", Singular: "widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

func installWidgets(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	_, err := envtest.InstallCRDs(cp.Config(), envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{widgetCRD()}, MaxTime: 2 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func uninstallWidgets(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	if err := envtest.UninstallCRDs(cp.Config(), envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{widgetCRD()}}); err != nil {
		t.Fatal(err)
	}
}

func widgetList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(widgets.GroupVersion().WithKind("WidgetList"))
	return list
}

func widget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(widgets)
	return w
}

func createWidget(t *testing.T, cp *mctest.ControlPlane, namespace, name string) {
	t.Helper()
	w := widget()
	w.SetNamespace(namespace)
	w.SetName(name)
	if err := cp.Client().Create(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// notSynced returns why a kind is not synced, empty if it is.
func notSynced(status fleet.Status, kind string) string {
	for _, n := range status.NotSynced {
		if n.Name() == kind {
			return n.Reason
		}
	}
	return ""
}

// TestAKindThatOneMemberDoesNotServe: a missing CRD is a state of that kind in that member. All else works, and so does
// the kind once it is installed.
func TestAKindThatOneMemberDoesNotServe(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	has, lacks := f.Members[0], f.Members[1]
	installWidgets(t, has)
	createWidget(t, has, ns, "w")

	m := newManager(t, f.Local)
	seen, configMaps := newRecord(), newRecord()
	if err := mcbuilder.ControllerManagedBy(m).For(widget()).Named(controllerName(t)).Complete(seen); err != nil {
		t.Fatal(err)
	}
	m.control(configMaps)
	m.join("lacks", lacks.Config())
	m.join("has", has.Config())
	m.start()
	eventually(t, "the member that has the kind is reconciled", func() bool { return seen.count("has", ns, "w") > 0 })
	eventually(t, "another kind of the member that lacks it is reconciled", func() bool { return configMaps.count("lacks", ns, "a") > 0 })
	eventually(t, "the status says which kind is missing", func() bool {
		status := m.status("lacks")
		return status.State == fleet.Ready && notSynced(status, widgets.GroupKind().String()) == fleet.ReasonNoKind
	})
	installWidgets(t, lacks)
	createWidget(t, lacks, ns, "w")
	eventually(t, "the kind is reconciled once it is there", func() bool { return seen.count("lacks", ns, "w") > 0 })
	eventually(t, "the status is clean", func() bool { return len(m.status("lacks").NotSynced) == 0 })
}

// TestReadingAKindThatCannotBeListedDoesNotHoldAWorker: the read fails and says why, instead of waiting for ever.
func TestReadingAKindThatCannotBeListedDoesNotHoldAWorker(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	limited := f.Members[0].AddUser(t, "limited")
	allowConfigMaps(t, f.Members[0], "limited")

	m := newManager(t, f.Local)
	reads := make(chan error, 1000)
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(t)).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.Namespace != ns {
				return reconcile.Result{}, nil
			}
			err := mcreconcile.ClusterFrom(ctx).GetClient().List(ctx, &corev1.SecretList{})
			reads <- err
			return reconcile.Result{}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	m.join("limited", limited)
	m.start()
	if err := <-reads; err == nil {
		t.Error("Secrets were read without the right to")
	} else {
		t.Logf("the reconciler was told: %v", err)
	}
	eventually(t, "the status says so too", func() bool { return notSynced(m.status("limited"), "Secret") == fleet.ReasonForbidden })
}

// TestFieldIndexesAreOnAllMembersNowAndLater: also on one whose kind is installed only later.
func TestFieldIndexesAreOnAllMembersNowAndLater(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	m.join("early", f.Members[0].Config())
	m.start()
	m.is("early", fleet.Ready)
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	indexer := m.GetFleetFieldIndexer()
	for field, obj := range map[string]client.Object{"name": &corev1.ConfigMap{}, "widget": widget()} {
		if err := indexer.IndexField(t.Context(), obj, field, byName); err != nil {
			t.Fatal(err)
		}
	}
	m.join("late", f.Members[1].Config())
	m.is("late", fleet.Ready)
	found := func(name fleet.ClusterName, list client.ObjectList, field, value string) bool {
		cl, err := m.GetCluster(t.Context(), name)
		if err != nil {
			return false
		}
		err = cl.GetCache().List(t.Context(), list, client.InNamespace(ns), client.MatchingFields{field: value})
		return err == nil
	}
	for _, name := range []fleet.ClusterName{"early", "late"} {
		configMaps := &corev1.ConfigMapList{}
		eventually(t, "the index of "+string(name)+" serves", func() bool {
			return found(name, configMaps, "name", "a") && len(configMaps.Items) == 1
		})
	}
	installWidgets(t, f.Members[1])
	createWidget(t, f.Members[1], ns, "w")
	list := widgetList()
	eventually(t, "the index of the kind that came later serves", func() bool {
		return found("late", list, "widget", "w") && len(list.Items) == 1
	})
}

// TestAnObjectOfTheLocalClusterIsReconciledForEachMember: also for one that joins later.
func TestAnObjectOfTheLocalClusterIsReconciledForEachMember(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	m := newManager(t, f.Local)
	configMap(t, f.Local, m.ns, "policy")
	seen := newRecord()
	if err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}, mcbuilder.ForEachMember(nil)).
		Named(controllerName(t)).Complete(seen); err != nil {
		t.Fatal(err)
	}
	m.start()
	for i, cp := range f.Members {
		name := fmt.Sprintf("m%d", i)
		secret := m.join(name, cp.Config())
		eventually(t, "the object is reconciled for "+name, func() bool { return seen.count(mcreconcile.ClusterName(name), m.ns, "policy") > 0 })
		defer m.leave(secret)
	}
	configMap(t, f.Local, m.ns, "another")
	for i := range f.Members {
		name := fmt.Sprintf("m%d", i)
		eventually(t, "a new object is reconciled for "+name, func() bool { return seen.count(mcreconcile.ClusterName(name), m.ns, "another") > 0 })
	}
}

// TestManyMembersAreEngagedSideBySide: none waits for another.
func TestManyMembersAreEngagedSideBySide(t *testing.T) {
	t.Parallel()
	const members = 100
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManager(t, f.Local)
	seen := newRecord()
	m.control(seen)
	for i := range members {
		m.join(fmt.Sprintf("m%03d", i), f.Members[0].Config())
	}
	m.start()
	for i := range members {
		name := mcreconcile.ClusterName(fmt.Sprintf("m%03d", i))
		eventually(t, string(name)+" is reconciled", func() bool { return seen.count(name, ns, "a") > 0 })
	}
}
