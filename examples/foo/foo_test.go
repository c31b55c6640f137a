package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestFoosOfAMemberBecomeDeployments in the central cluster (AS-5). Kubernetes' own controllers run there, and the garbage
// collector in cluster1; the test plays the kubelet.
func TestFoosOfAMemberBecomeDeployments(t *testing.T) {
	t.Parallel()
	w := start(t, 1)
	cluster1 := w.Members[0]
	w.join(t, cluster1, "cluster1")

	t.Run("the finalizer comes before the Deployment", func(t *testing.T) {
		w.Local.Stop(t)
		create(t, cluster1, newFoo("example-foo", "example-foo"))
		stage.Soon(t, "the Foo has a finalizer", func() bool { return len(getFoo(t, cluster1, "example-foo").Finalizers) > 0 })
		w.Local.Restart(t)
		d := w.becomes(t, "example-foo", "is there", exists)
		foo, owner := getFoo(t, cluster1, "example-foo"), ownerOf(d)
		if owner.Cluster != "cluster1" || owner.NamespacedName() != client.ObjectKeyFromObject(foo) || owner.UID != foo.UID {
			t.Errorf("the Deployment belongs to %s (%s)", owner, owner.UID)
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; *d.Spec.Replicas != 1 || image != "nginx:1.29" {
			t.Errorf("the Deployment has %d replicas of %s, want 1 of nginx:1.29", *d.Spec.Replicas, image)
		}
	})

	w.Local.StartControllerManager(t, "deployment-controller", "replicaset-controller", "garbage-collector-controller")
	cluster1.StartControllerManager(t, "garbage-collector-controller")

	t.Run("scaling, and available replicas", func(t *testing.T) {
		setReplicas(t, cluster1, "example-foo", 2)
		w.becomes(t, "example-foo", "has 2 replicas", hasReplicas(2))
		stage.Eventually(t, "the Deployment has 2 available replicas, by Kubernetes' controllers", func() bool {
			w.makeAvailable(t)
			return w.deployment(t, "example-foo").Status.AvailableReplicas == 2
		})
		stage.Soon(t, "the Foo has 2 available replicas", func() bool { return getFoo(t, cluster1, "example-foo").Status.AvailableReplicas == 2 })
	})

	t.Run("a changed Deployment is changed back, a deleted one is created anew", func(t *testing.T) {
		scaled := w.deployment(t, "example-foo")
		must(t, w.Local.Client().Patch(t.Context(), scaled, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":7}}`))))
		w.becomes(t, "example-foo", "has 2 replicas again", hasReplicas(2))
		before := w.deployment(t, "example-foo")
		hold, release := []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), []byte(`{"metadata":{"finalizers":null}}`)
		must(t, w.Local.Client().Patch(t.Context(), before, client.RawPatch(types.MergePatchType, hold)))
		must(t, w.Local.Client().Delete(t.Context(), before))
		stage.Soon(t, "the Foo does not say that all is well while its Deployment goes", func() bool {
			synced := meta.FindStatusCondition(getFoo(t, cluster1, "example-foo").Status.Conditions, v1alpha1.ConditionSynced)
			return synced.Status == metav1.ConditionFalse && synced.Reason == dependents.ReasonPending
		})
		must(t, w.Local.Client().Patch(t.Context(), before, client.RawPatch(types.MergePatchType, release)))
		w.becomes(t, "example-foo", "is another one", func(d *appsv1.Deployment) bool {
			return d.UID != before.UID && ownerOf(d).Same(ownerOf(before))
		})
	})

	t.Run("events, and a Deployment that is somebody else's", func(t *testing.T) {
		told(t, cluster1, "example-foo", corev1.EventTypeNormal, "Synced", "foo/example-foo")
		told(t, cluster1, "example-foo", corev1.EventTypeNormal, "Created", "foo/example-foo")
		foreign := deploymentNamed("taken")
		create(t, w.Local, foreign)
		create(t, cluster1, newFoo("wants-taken", "taken"))
		told(t, cluster1, "wants-taken", corev1.EventTypeWarning, "ErrResourceExists", "foo/taken")
		told(t, cluster1, "wants-taken", corev1.EventTypeWarning, "Conflict", "foo/taken")
		now := w.deployment(t, "taken")
		if !isUntouched(now) || now.Generation != foreign.Generation {
			t.Errorf("the Deployment that is somebody else's was changed: %v", now)
		}
		if isUntouched(w.deployment(t, "example-foo")) {
			t.Error("the Deployment of a Foo does not show who has written it")
		}
		must(t, cluster1.Client().Delete(t.Context(), getFoo(t, cluster1, "wants-taken")))
		isGone(t, cluster1, "wants-taken")
		stage.Stays(t, 15*time.Second, "the Deployment that is somebody else's is not deleted", func() bool {
			d := w.deployment(t, "taken")
			return d != nil && d.DeletionTimestamp == nil
		})
	})

	t.Run("a Foo that is suspended says so, and is followed again afterwards", func(t *testing.T) {
		foo := newFoo("suspended", "suspended")
		foo.Annotations = map[string]string{dependents.SuspendAnnotation: "true"}
		create(t, cluster1, foo)
		told(t, cluster1, foo.Name, corev1.EventTypeWarning, "Suspended", dependents.SuspendAnnotation)
		if w.deployment(t, foo.Name) != nil {
			t.Error("its Deployment is there")
		}
		change(t, cluster1, foo.Name, func(foo *v1alpha1.Foo) { foo.Annotations = nil })
		w.becomes(t, foo.Name, "is there", exists)
		told(t, cluster1, foo.Name, corev1.EventTypeNormal, "Synced", "foo/suspended")
	})

	for policy, test := range map[metav1.DeletionPropagation]func(*testing.T, *world, *mctest.ControlPlane, *v1alpha1.Foo){
		metav1.DeletePropagationBackground: testBackground,
		metav1.DeletePropagationForeground: testForeground,
		metav1.DeletePropagationOrphan:     testOrphan,
	} {
		t.Run("deletion: "+string(policy), func(t *testing.T) {
			t.Parallel()
			name := "deleted-" + strings.ToLower(string(policy))
			foo := newFoo(name, name)
			create(t, cluster1, foo)
			w.becomes(t, name, "is there", exists)
			test(t, w, cluster1, foo)
		})
	}
}

func testBackground(t *testing.T, w *world, cluster1 *mctest.ControlPlane, foo *v1alpha1.Foo) {
	t.Helper()
	must(t, cluster1.Client().Delete(t.Context(), foo, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	isGone(t, cluster1, foo.Name)
	stage.Soon(t, "the Deployment is gone", func() bool { return w.deployment(t, foo.Name) == nil })
}

// testForeground holds the Deployment with a finalizer, and the Foo must wait for it.
func testForeground(t *testing.T, w *world, cluster1 *mctest.ControlPlane, foo *v1alpha1.Foo) {
	t.Helper()
	hold := func(finalizers ...string) {
		t.Helper()
		d := w.deployment(t, foo.Name)
		patch := client.MergeFrom(d.DeepCopy())
		d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == "example.com/hold" })
		d.Finalizers = append(d.Finalizers, finalizers...)
		must(t, w.Local.Client().Patch(t.Context(), d, patch))
	}
	hold("example.com/hold")
	must(t, cluster1.Client().Delete(t.Context(), foo, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	stage.Soon(t, "only the two finalizers remain that are not the garbage collectors'", func() bool {
		d, f := w.deployment(t, foo.Name), getFoo(t, cluster1, foo.Name)
		return d != nil && f != nil && len(d.Finalizers) == 1 && d.DeletionTimestamp != nil && len(f.Finalizers) == 1 && f.DeletionTimestamp != nil
	})
	stage.Soon(t, "the controller waits for the Deployment", func() bool {
		synced := meta.FindStatusCondition(getFoo(t, cluster1, foo.Name).Status.Conditions, v1alpha1.ConditionSynced)
		return synced != nil && synced.Reason == "Terminating"
	})
	stage.Stays(t, 10*time.Second, "the Foo waits for the Deployment", func() bool {
		return getFoo(t, cluster1, foo.Name) != nil && w.deployment(t, foo.Name) != nil
	})
	hold()
	isGone(t, cluster1, foo.Name)
	if w.deployment(t, foo.Name) != nil {
		t.Error("the Foo is gone before the Deployment")
	}
}

func testOrphan(t *testing.T, w *world, cluster1 *mctest.ControlPlane, foo *v1alpha1.Foo) {
	t.Helper()
	must(t, cluster1.Client().Delete(t.Context(), foo, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	isGone(t, cluster1, foo.Name)
	d := w.deployment(t, foo.Name)
	if d == nil {
		t.Fatal("the Deployment is deleted")
	}
	w.staysAs(t, 15*time.Second, d)
	if references, err := mcowner.References(d, mcowner.ByName("")); len(references) > 0 || err != nil || d.Labels[mcowner.FleetLabel] != "" {
		t.Errorf("the Deployment still refers to the Foo: %v, %v", d.Labels, d.Annotations)
	}
	must(t, w.Local.Client().Delete(t.Context(), d))
	stage.Soon(t, "the Deployment is gone", func() bool { return w.deployment(t, foo.Name) == nil })
}

// TestFoosAreServedInClustersThatComeAndGo is AS-6 for clusters that join by Secrets, while no other controllers run. The program is
// a process of its own, which stays ready, and has the rights of the manifests and no others.
func TestFoosAreServedInClustersThatComeAndGo(t *testing.T) {
	t.Parallel()
	w := start(t, 2)
	cluster1, cluster2 := w.Members[0], w.Members[1]
	w.join(t, cluster1, "cluster1")
	w.join(t, cluster2, "cluster2")

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

	t.Run("AS-6.2 the credentials of a member do not list Secrets", func(t *testing.T) {
		if os.Getenv("MCTEST_RIGHTS") == "update" {
			t.Skip("accounts may do everything meanwhile")
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(w.accounts["cluster1"].Kubeconfig(t))
		must(t, err)
		as, err := client.New(config, client.Options{})
		must(t, err)
		if err := as.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing Secrets returned %v, want that it is forbidden", err)
		}
	})

	one := w.ofTwo(t, cluster1, cluster2, "dup")
	t.Run("meanwhile", func(t *testing.T) {
		t.Run("AS-6.3 two Foos of the same deploymentName do not fight", func(t *testing.T) {
			t.Parallel()
			w.staysAs(t, 30*time.Second, one)
		})
		t.Run("two Foos of the same deploymentName that change", func(t *testing.T) {
			t.Parallel()
			testTwoFoos(t, w, cluster1, cluster2)
		})
		t.Run("the schema refuses what cannot be a Deployment", func(t *testing.T) {
			t.Parallel()
			testSchema(t, w, cluster1)
		})
	})

	t.Run("Foos that lost their finalizer", func(t *testing.T) { testStripped(t, w, cluster1) })

	t.Run("AS-6.4 a cluster joins, another leaves", func(t *testing.T) {
		cluster3 := w.AddMember(t)
		w.join(t, cluster3, "cluster3")
		create(t, cluster3, newFoo("baz", "baz"))
		w.becomes(t, "baz", "is there", exists)

		bar := w.deployment(t, "bar")
		stage.Leave(t, w.Local, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "cluster2"}})
		isLetGo(t, cluster2, "bar")
		setReplicas(t, cluster1, "example-foo", 3)
		setReplicas(t, cluster3, "baz", 3)
		w.becomes(t, "example-foo", "has 3 replicas", hasReplicas(3))
		w.becomes(t, "baz", "has 3 replicas", hasReplicas(3))
		w.outlives(t, bar)
	})

	t.Run("no right is missing, and none is too much", func(t *testing.T) {
		stage.Join(t, w.Local, "broken", []byte("this is no kubeconfig"), nil) // the program says so in an event
		w.central.NeedsAll(t)
		w.accounts["cluster1"].NeedsAll(t)
	})
}

// ofTwo returns the Deployment that a Foo of each cluster asks for. One of them has it, and the other one is told, although no
// watch has told the program of the Deployment.
func (w *world) ofTwo(t *testing.T, cluster1, cluster2 *mctest.ControlPlane, name string) *appsv1.Deployment {
	t.Helper()
	defer w.central.HoldEvents("deployments")()
	return w.contend(t, cluster1, cluster2, name)
}

// contend creates a Foo of each cluster that asks for the same Deployment, which one of them gets.
func (w *world) contend(t *testing.T, cluster1, cluster2 *mctest.ControlPlane, name string) *appsv1.Deployment {
	t.Helper()
	create(t, cluster1, newFoo(name, name))
	create(t, cluster2, newFoo(name, name))
	d := w.becomes(t, name, "is there", exists)
	winner, loser := cluster1, cluster2
	if ownerOf(d).Cluster == "cluster2" {
		winner, loser = cluster2, cluster1
	}
	told(t, loser, name, corev1.EventTypeWarning, "ErrResourceExists", "foo/"+name)
	told(t, winner, name, corev1.EventTypeNormal, "Synced", "foo/"+name)
	return w.deployment(t, name)
}

func testSchema(t *testing.T, w *world, cluster1 *mctest.ControlPlane) {
	t.Helper()
	negative := newFoo("bad", "bad")
	negative.Spec.Replicas = new(int32(-1))
	for _, bad := range []*v1alpha1.Foo{newFoo("bad", ""), newFoo("bad", "Not_A_Label"), negative} {
		if err := cluster1.Client().Create(t.Context(), bad); !apierrors.IsInvalid(err) {
			t.Errorf("creating a Foo with %+v returned %v, want that it is invalid", bad.Spec, err)
		}
	}
	foo := newFoo("by-default", "by-default")
	foo.Spec.Replicas = nil
	create(t, cluster1, foo)
	w.becomes(t, "by-default", "has a replica", hasReplicas(1))
}

// testStripped takes the finalizers from Foos of several namespaces, and deletes them. The program sees that they are gone.
func testStripped(t *testing.T, w *world, cluster1 *mctest.ControlPlane) {
	t.Helper()
	create(t, cluster1, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "another"}})
	namespaces := []string{"default", "another"}
	foos := make([]*v1alpha1.Foo, 0, len(namespaces))
	for _, in := range namespaces {
		foo := newFoo("stripped-"+in, "stripped-"+in)
		foo.Namespace = in
		create(t, cluster1, foo)
		w.becomes(t, foo.Name, "is there", exists)
		stage.Soon(t, "the Foo is synced", func() bool {
			return meta.IsStatusConditionTrue(get(t, cluster1, foo).Status.Conditions, v1alpha1.ConditionSynced)
		})
		foos = append(foos, foo)
	}
	w.program.Freeze()
	for _, foo := range foos {
		must(t, cluster1.Client().Patch(t.Context(), foo, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		must(t, cluster1.Client().Delete(t.Context(), foo))
	}
	w.program.Thaw()
	for _, foo := range foos {
		stage.Soon(t, "the Deployment is gone", func() bool { return w.deployment(t, foo.Name) == nil })
	}
}

// testTwoFoos shows the Foos of both clusters at the same time, which they ask for the same Deployments in. Then each
// loser has its turn again and again, and nothing changes.
func testTwoFoos(t *testing.T, w *world, cluster1, cluster2 *mctest.ControlPlane) {
	t.Helper()
	names := []string{"dup-1", "dup-2", "dup-3", "dup-4", "dup-5"}
	w.program.Freeze()
	for _, name := range names {
		create(t, cluster1, newFoo(name, name))
		create(t, cluster2, newFoo(name, name))
	}
	w.program.Thaw()
	for _, name := range names {
		d := w.becomes(t, name, "is there", exists)
		winner, loser := cluster1, cluster2
		if ownerOf(d).Cluster == "cluster2" {
			winner, loser = cluster2, cluster1
		}
		told(t, loser, name, corev1.EventTypeWarning, "ErrResourceExists", "foo/"+name)
		told(t, winner, name, corev1.EventTypeNormal, "Synced", "foo/"+name)
		for replicas := range int32(3) {
			setReplicas(t, loser, name, 7+replicas)
			isObserved(t, loser, name)
		}
		if now := w.deployment(t, name); now.Generation != d.Generation || !ownerOf(now).Same(ownerOf(d)) {
			t.Errorf("the Deployment was changed: %v", now)
		}
		must(t, winner.Client().Delete(t.Context(), getFoo(t, winner, name)))
		w.becomes(t, name, "is the other Foo's", hasReplicas(9))
	}
}

func isObserved(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	stage.Soon(t, "the Foo was reconciled", func() bool {
		foo := getFoo(t, cp, name)
		return foo.Status.ObservedGeneration == foo.Generation
	})
}

// deploymentNamed returns a Deployment that is no Foo's.
func deploymentNamed(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "own", Image: "own"}}},
			},
		},
	}
}
