package namespaces_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1apply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// teams are two namespaces, and the member that the first is.
type teams struct {
	*mctest.ControlPlane
	ours, theirs string
	member       cluster.Cluster
}

// twoTeams starts a manager with two members.
func twoTeams(t *testing.T) teams {
	t.Helper()
	cp := pool.Start(t, mctest.Options{}).Local
	ours, theirs := namespace(t, cp), namespace(t, cp)
	m := newManager(t, cp, namespaces.Provider{})
	m.start()
	return teams{cp, ours, theirs, m.member(fleet.ClusterName(ours))}
}

// form is a way to hold an object of a kind.
type form struct {
	object client.Object
	list   client.ObjectList
}

// forms returns the three ways to hold objects of a kind of the core group.
func forms(kind string, object client.Object, list client.ObjectList) map[string]form {
	gvk := corev1.SchemeGroupVersion.WithKind(kind)
	lists := corev1.SchemeGroupVersion.WithKind(kind + "List")
	u, ul := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	u.SetGroupVersionKind(gvk)
	ul.SetGroupVersionKind(lists)
	p, pl := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadataList{}
	p.SetGroupVersionKind(gvk)
	pl.SetGroupVersionKind(lists)
	return map[string]form{"structured": {object, list}, "unstructured": {u, ul}, "metadata": {p, pl}}
}

// names returns NAMESPACE/NAME of each item of a list.
func names(t *testing.T, list client.ObjectList) []string {
	t.Helper()
	var out []string
	err := meta.EachListItem(list, func(obj runtime.Object) error {
		out = append(out, client.ObjectKeyFromObject(obj.(client.Object)).String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAMemberSeesItsNamespaceAlone(t *testing.T) {
	teams := twoTeams(t)
	create(t, teams.ControlPlane, configMap(teams.ours, "x"))
	create(t, teams.ControlPlane, configMap(teams.theirs, "y"))
	readers := map[string]client.Reader{
		"client": teams.member.GetClient(), "cache": teams.member.GetCache(), "API reader": teams.member.GetAPIReader(),
	}
	for by, reader := range readers {
		for as, f := range forms("ConfigMap", &corev1.ConfigMap{}, &corev1.ConfigMapList{}) {
			t.Run(by+", "+as, func(t *testing.T) {
				for _, namespace := range []string{"", teams.ours} {
					if err := reader.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "x"}, f.object); err != nil {
						t.Errorf("getting x in %q: %v", namespace, err)
					}
					if got := f.object.GetNamespace(); got != teams.ours {
						t.Errorf("x is in %q, want its namespace %s", got, teams.ours)
					}
					if err := reader.List(t.Context(), f.list, client.InNamespace(namespace)); err != nil {
						t.Errorf("listing in %q: %v", namespace, err)
					}
					if diff := cmp.Diff([]string{teams.ours + "/x"}, names(t, f.list)); diff != "" {
						t.Errorf("listing in %q (-want, +got):\n%s", namespace, diff)
					}
				}
				if err := reader.Get(t.Context(), client.ObjectKey{Namespace: teams.theirs, Name: "y"}, f.object); !errors.Is(err, namespaces.ErrOutside) {
					t.Errorf("getting from the other namespace: %v, want ErrOutside", err)
				}
				if err := reader.List(t.Context(), f.list, client.InNamespace(teams.theirs)); !errors.Is(err, namespaces.ErrOutside) {
					t.Errorf("listing the other namespace: %v, want ErrOutside", err)
				}
				if err := reader.Get(t.Context(), client.ObjectKey{Name: "y"}, f.object); !apierrors.IsNotFound(err) {
					t.Errorf("getting what is not there: %v, want that it is not found", err)
				}
			})
		}
	}
}

// TestNoNameLeadsOutOfTheNamespace: clients of metadata join what they are given into the path of a request.
func TestNoNameLeadsOutOfTheNamespace(t *testing.T) {
	teams := twoTeams(t)
	create(t, teams.ControlPlane, configMap(teams.theirs, "y"))
	c, patch := teams.member.GetClient(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"by":"us"}}}`))
	for kind, name := range map[string]string{
		"ConfigMap": "../../" + teams.theirs + "/configmaps/y", "Node": "../namespaces/" + teams.theirs + "/configmaps/y",
	} {
		leading := func() client.Object {
			obj := &metav1.PartialObjectMetadata{}
			obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			obj.Name = name
			return obj
		}
		for by, do := range map[string]func(client.Object) error{
			"API reader": func(obj client.Object) error {
				return teams.member.GetAPIReader().Get(t.Context(), client.ObjectKey{Name: name}, obj)
			},
			"client": func(obj client.Object) error { return c.Get(t.Context(), client.ObjectKey{Name: name}, obj) },
			"cache": func(obj client.Object) error {
				return teams.member.GetCache().Get(t.Context(), client.ObjectKey{Name: name}, obj)
			},
			"create": func(obj client.Object) error { return c.Create(t.Context(), obj) },
			"update": func(obj client.Object) error { return c.Update(t.Context(), obj) },
			"patch":  func(obj client.Object) error { return c.Patch(t.Context(), obj, patch) },
			"delete": func(obj client.Object) error { return c.Delete(t.Context(), obj) },
			"status": func(obj client.Object) error { return c.Status().Patch(t.Context(), obj, patch) },
			"apply": func(client.Object) error {
				return c.Apply(t.Context(), corev1apply.ConfigMap(name, teams.ours), client.FieldOwner("test"))
			},
		} {
			if err := do(leading()); !errors.Is(err, namespaces.ErrOutside) {
				t.Errorf("%s of the %s %s: %v, want ErrOutside", by, kind, name, err)
			}
		}
	}
	there := &corev1.ConfigMap{}
	if err := teams.Client().Get(t.Context(), client.ObjectKey{Namespace: teams.theirs, Name: "y"}, there); err != nil || there.Labels["by"] != "" {
		t.Errorf("the other namespace's is %+v, %v", there.ObjectMeta, err)
	}
}

func TestAMemberSeesItsOwnNamespaceObjectAlone(t *testing.T) {
	teams := twoTeams(t)
	readers := map[string]client.Reader{"client": teams.member.GetClient(), "API reader": teams.member.GetAPIReader()}
	for by, reader := range readers {
		for as, f := range forms("Namespace", &corev1.Namespace{}, &corev1.NamespaceList{}) {
			t.Run(by+", "+as, func(t *testing.T) {
				if err := reader.Get(t.Context(), client.ObjectKey{Name: teams.ours}, f.object); err != nil {
					t.Error(err)
				}
				if err := reader.Get(t.Context(), client.ObjectKey{Name: teams.theirs}, f.object); !errors.Is(err, namespaces.ErrOutside) {
					t.Errorf("getting the other: %v, want ErrOutside", err)
				}
				if err := reader.List(t.Context(), f.list, client.MatchingLabels{label: "true"}, client.Limit(1)); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff([]string{"/" + teams.ours}, names(t, f.list)); diff != "" {
					t.Errorf("listing (-want, +got):\n%s", diff)
				}
				if err := reader.List(t.Context(), f.list, client.MatchingLabels{label: "false"}); err != nil || len(names(t, f.list)) != 0 {
					t.Errorf("listing others than itself: %v, %v", names(t, f.list), err)
				}
			})
		}
	}
}

func TestWhatIsReadIsACopy(t *testing.T) {
	teams := twoTeams(t)
	list := &corev1.NamespaceList{}
	if err := teams.member.GetClient().List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	list.Items[0].Labels["changed"] = "true"
	ns := &corev1.Namespace{}
	if err := teams.member.GetClient().Get(t.Context(), client.ObjectKey{Name: teams.ours}, ns); err != nil {
		t.Fatal(err)
	}
	if ns.Labels["changed"] != "" {
		t.Error("a change of what was listed is in the cache")
	}
}

func TestKindsWithoutNamespacesCanBeRead(t *testing.T) {
	teams := twoTeams(t)
	for by, reader := range map[string]client.Reader{
		"client": teams.member.GetClient(), "cache": teams.member.GetCache(), "API reader": teams.member.GetAPIReader(),
	} {
		if err := reader.Get(t.Context(), client.ObjectKey{Name: "cluster-admin"}, &rbacv1.ClusterRole{}); err != nil {
			t.Errorf("%s: %v", by, err)
		}
		roles := &rbacv1.ClusterRoleList{}
		if err := reader.List(t.Context(), roles); err != nil || len(roles.Items) < 2 {
			t.Errorf("%s: %d cluster roles, %v", by, len(roles.Items), err)
		}
	}
}

// writes are all ways to write, here to the ConfigMap or the Deployment "x" of a namespace.
var writes = map[string]func(ctx context.Context, c client.Client, namespace string) error{
	"create": func(ctx context.Context, c client.Client, namespace string) error {
		return c.Create(ctx, configMap(namespace, "new"))
	},
	"update": func(ctx context.Context, c client.Client, namespace string) error {
		cm := configMap(namespace, "x")
		cm.Data = map[string]string{"by": "update"}
		return c.Update(ctx, cm)
	},
	"patch": func(ctx context.Context, c client.Client, namespace string) error {
		return c.Patch(ctx, configMap(namespace, "x"), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"by":"patch"}}`)))
	},
	"apply": func(ctx context.Context, c client.Client, namespace string) error {
		cm := corev1apply.ConfigMap("x", namespace).WithData(map[string]string{"by": "apply"})
		if namespace == "" {
			cm.Namespace = nil
		}
		return c.Apply(ctx, cm, client.FieldOwner("test"), client.ForceOwnership)
	},
	"apply unstructured": func(ctx context.Context, c client.Client, namespace string) error {
		cm := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"by": "apply"}}}
		cm.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		cm.SetNamespace(namespace)
		cm.SetName("x")
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(cm), client.FieldOwner("test"), client.ForceOwnership)
	},
	"delete": func(ctx context.Context, c client.Client, namespace string) error {
		return c.Delete(ctx, configMap(namespace, "x"))
	},
	"delete all": func(ctx context.Context, c client.Client, namespace string) error {
		return c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace))
	},
	"status": func(ctx context.Context, c client.Client, namespace string) error {
		return c.Status().Patch(ctx, deployment(namespace), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"replicas":1}}`)))
	},
	"update status": func(ctx context.Context, c client.Client, namespace string) error {
		return c.Status().Update(ctx, deployment(namespace))
	},
	"update scale": func(ctx context.Context, c client.Client, namespace string) error {
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
		return c.SubResource("scale").Update(ctx, deployment(namespace), client.WithSubResourceBody(scale))
	},
	"get scale": func(ctx context.Context, c client.Client, namespace string) error {
		return c.SubResource("scale").Get(ctx, deployment(namespace), &autoscalingv1.Scale{})
	},
	"apply status": func(ctx context.Context, c client.Client, namespace string) error {
		d := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"replicas": int64(1)}}}
		d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		d.SetNamespace(namespace)
		d.SetName("x")
		return c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(d), client.FieldOwner("test"), client.ForceOwnership)
	},
	"create token": func(ctx context.Context, c client.Client, namespace string) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}}
		return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{})
	},
}

func TestAMemberWritesToItsNamespaceAlone(t *testing.T) {
	teams := twoTeams(t)
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			for namespace, given := range map[string]string{"none": "", "its own": teams.ours} {
				reset(t, teams.ControlPlane, teams.ours)
				if err := write(t.Context(), teams.member.GetClient(), given); err != nil {
					t.Errorf("with the namespace %s given: %v", namespace, err)
				}
			}
			reset(t, teams.ControlPlane, teams.theirs)
			before := everything(t, teams.ControlPlane, teams.theirs)
			if err := write(t.Context(), teams.member.GetClient(), teams.theirs); !errors.Is(err, namespaces.ErrOutside) {
				t.Errorf("with the other namespace given: %v, want ErrOutside", err)
			}
			if diff := cmp.Diff(before, everything(t, teams.ControlPlane, teams.theirs)); diff != "" {
				t.Errorf("the other namespace is not as it was (-before, +after):\n%s", diff)
			}
		})
	}
}

func TestAMemberWritesNothingThatHasNoNamespace(t *testing.T) {
	teams := twoTeams(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	create(t, teams.ControlPlane, role)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: teams.ours}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	c := teams.member.GetClient()
	for name, err := range map[string]error{
		"create":           c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "y"}}),
		"update":           c.Update(t.Context(), role),
		"patch":            c.Patch(t.Context(), role, patch),
		"apply":            c.Apply(t.Context(), rbacv1apply.ClusterRole("x"), client.FieldOwner("test")),
		"delete":           c.Delete(t.Context(), role),
		"delete all":       c.DeleteAllOf(t.Context(), &rbacv1.ClusterRole{}),
		"status":           c.Status().Patch(t.Context(), ns, patch),
		"its own":          c.Patch(t.Context(), ns, patch),
		"deleting its own": c.Delete(t.Context(), ns),
	} {
		if !errors.Is(err, namespaces.ErrOutside) {
			t.Errorf("%s: %v, want ErrOutside", name, err)
		}
	}
}

func deployment(namespace string) *appsv1.Deployment {
	pod := map[string]string{"app": "x"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: pod},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
			},
		},
	}
}

// reset leaves in a namespace exactly what writes need.
func reset(t *testing.T, cp *mctest.ControlPlane, namespace string) {
	t.Helper()
	for _, kind := range []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}, &corev1.ServiceAccount{}} {
		if err := cp.Client().DeleteAllOf(t.Context(), kind, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	create(t, cp, configMap(namespace, "x"))
	create(t, cp, deployment(namespace))
	create(t, cp, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}})
}

// everything returns the versions of what writes could change.
func everything(t *testing.T, cp *mctest.ControlPlane, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &appsv1.DeploymentList{}} {
		if err := cp.Client().List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			obj, err := meta.Accessor(item)
			versions[obj.GetName()] += " " + obj.GetResourceVersion()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return versions
}
