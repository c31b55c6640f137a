package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.RunInPod(m, &pool, "fleet", main)) }

// TestDeploymentsAreCopied (AS-3) with the rights of the manifests and no others, which are about the namespace default alone.
// Kubernetes' own controllers of Deployments work on originals and copies meanwhile.
func TestDeploymentsAreCopied(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 2})
	cluster1, cluster2, cluster3 := f.Local, f.Members[0], f.Members[1] // the program runs in cluster1
	local := stage.NewAccount(t, cluster1, mctest.Rights{File: "rbac/controller.yaml", Needed: map[string]string{
		"get configmaps in fleet":    "no cluster is given up here: package dependents has tests of that",
		"create configmaps in fleet": "no cluster is given up here: package dependents has tests of that",
		"patch configmaps in fleet":  "no cluster is given up here: package dependents has tests of that",
	}})
	source := stage.NewAccount(t, cluster1, mctest.Rights{File: "rbac/source.yaml"})
	target2, target3 := stage.NewAccount(t, cluster2, mctest.Rights{File: "rbac/target.yaml"}), stage.NewAccount(t, cluster3, mctest.Rights{File: "rbac/target.yaml"})
	for _, cp := range []*mctest.ControlPlane{cluster1, cluster2} {
		cp.StartControllerManager(t, "deployment-controller", "garbage-collector-controller")
	}
	secret1 := stage.Join(t, cluster1, "cluster1", source.Kubeconfig(t), map[string]string{"role": "source"}, objects.LeaveFinalizer)
	secret2 := stage.Join(t, cluster1, "cluster2", target2.Kubeconfig(t), map[string]string{"role": "target"})
	secret3 := stage.Join(t, cluster1, "cluster3", target3.Kubeconfig(t), nil, objects.LeaveFinalizer)
	run := func() *stage.Program { return stage.Start(t, "--kubeconfig", local.File(t), "--metrics", "0") }
	p := run()

	t.Run("a Deployment is copied, with its labels", func(t *testing.T) {
		create(t, cluster1, deployment("kube-system", "x"))
		create(t, cluster1, deployment("default", "nginx"))
		original := get(t, cluster1, "default", "nginx")
		d := becomes(t, cluster2, "nginx", "a copy", exists)
		if diff := cmp.Diff(original.Spec, d.Spec); diff != "" || d.Labels["team"] != "a" {
			t.Errorf("the copy has the labels %v, and differs (-original, +copy):\n%s", d.Labels, diff)
		}
		owner, _ := mcowner.ControllerOf(d, mcowner.ByName("cluster2"))
		if owner.Cluster != "cluster1" || owner.UID != original.UID {
			t.Errorf("the copy belongs to %s, want the original", owner)
		}
	})
	t.Run("those of other namespaces are neither copied nor watched", func(t *testing.T) {
		for _, account := range []*stage.Account{source, target2} {
			for _, asked := range account.Asked(t) {
				if strings.Contains(asked, "deployments") && !strings.HasSuffix(asked, " in default") {
					t.Errorf("the program has asked for %s", asked)
				}
			}
		}
		if d := get(t, cluster2, "kube-system", "x"); d != nil {
			t.Error("a Deployment of another namespace was copied")
		}
	})
	t.Run("the copier and Kubernetes' controllers do not fight", func(t *testing.T) {
		d := becomes(t, cluster2, "nginx", "observed", func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration > 0 })
		if d.Generation != 1 {
			t.Errorf("the copy has the generation %d, so its spec was changed", d.Generation)
		}
	})
	t.Run("the copy follows, and drift is reverted", func(t *testing.T) {
		scale(t, cluster1, "nginx", 3)
		becomes(t, cluster2, "nginx", "scaled as the original is", hasReplicas(3))
		scale(t, cluster2, "nginx", 7)
		becomes(t, cluster2, "nginx", "scaled back", hasReplicas(3))
		before := get(t, cluster2, "default", "nginx")
		remove(t, cluster2, before)
		becomes(t, cluster2, "nginx", "created anew", func(d *appsv1.Deployment) bool { return d.UID != before.UID })
	})
	t.Run("a Deployment that is somebody else's is left alone", func(t *testing.T) {
		foreign := deployment("default", "legacy")
		foreign.Labels = map[string]string{"team": "b"}
		release := target2.HoldEvents("deployments") // not even if the cache does not know of it
		create(t, cluster2, foreign)
		create(t, cluster1, deployment("default", "legacy"))
		told(t, cluster1, "legacy", "Conflict", "cluster2")
		release()
		remove(t, cluster1, get(t, cluster1, "default", "legacy"))
		isGone(t, cluster1, "legacy")
		stage.Stays(t, 15*time.Second, "somebody else's Deployment is there, and nobody has touched it", func() bool {
			now := get(t, cluster2, "default", "legacy")
			return now != nil && now.UID == foreign.UID && now.DeletionTimestamp == nil && !touched(now)
		})
	})
	t.Run("an original waits for a target that cannot be reached, and goes after its copy", func(t *testing.T) {
		cluster2.Stop(t)
		remove(t, cluster1, get(t, cluster1, "default", "nginx"))
		told(t, cluster1, "nginx", "ClusterNotReady", "cluster2")
		stage.Stays(t, 15*time.Second, "the original waits", func() bool {
			d := get(t, cluster1, "default", "nginx")
			return d != nil && d.DeletionTimestamp != nil && len(d.Finalizers) > 0
		})
		cluster2.Restart(t)
		isGone(t, cluster1, "nginx")
		if d := get(t, cluster2, "default", "nginx"); d != nil {
			t.Errorf("the original is gone before its copy: %v", d)
		}
	})
	t.Run("another target", func(t *testing.T) {
		create(t, cluster1, deployment("default", "moves"))
		becomes(t, cluster2, "moves", "a copy", exists)
		label(t, cluster1, secret2, `{"role":null}`)
		label(t, cluster1, secret3, `{"role":"target"}`)
		becomes(t, cluster3, "moves", "a copy", exists)
		isGone(t, cluster2, "moves")
	})
	t.Run("another target while the program does not run", func(t *testing.T) {
		p.Kill()
		label(t, cluster1, secret2, `{"role":"target"}`)
		label(t, cluster1, secret3, `{"role":null}`)
		p = run()
		becomes(t, cluster2, "moves", "a copy", exists)
		isGone(t, cluster3, "moves")
	})
	t.Run("an original goes without its finalizer while the program does not run", func(t *testing.T) {
		p.Kill()
		patch(t, cluster1, deployment("default", "moves"), `{"metadata":{"finalizers":null}}`)
		remove(t, cluster1, deployment("default", "moves"))
		p = run()
		stage.Within(t, time.Minute, "its copy is swept", func() bool { return get(t, cluster2, "default", "moves") == nil })
	})
	t.Run("a target leaves, and keeps its copies, for which no original waits", func(t *testing.T) {
		label(t, cluster1, secret3, `{"role":"target"}`)
		create(t, cluster1, deployment("default", "left"))
		before := becomes(t, cluster3, "left", "a copy", exists)
		stage.Leave(t, cluster1, secret3)
		remove(t, cluster1, deployment("default", "left"))
		isGone(t, cluster1, "left")
		if now := get(t, cluster3, "default", "left"); now == nil || now.UID != before.UID || now.DeletionTimestamp != nil {
			t.Errorf("the copy in the target that has left is %v", now)
		}
	})
	t.Run("the source leaves, its originals can be deleted, and the copies stay", func(t *testing.T) {
		create(t, cluster1, deployment("default", "stays"))
		before := becomes(t, cluster2, "stays", "a copy", exists)
		stage.Leave(t, cluster1, secret1)
		if held := get(t, cluster1, "default", "stays").Finalizers; len(held) > 0 {
			t.Errorf("the original in the source that has left has the finalizers %q", held)
		}
		remove(t, cluster1, deployment("default", "stays"))
		isGone(t, cluster1, "stays")
		stage.Stays(t, 15*time.Second, "the copy is there", func() bool {
			now := get(t, cluster2, "default", "stays")
			return now != nil && now.UID == before.UID && now.DeletionTimestamp == nil
		})
	})
	t.Run("no right is missing, and none is too much", func(t *testing.T) {
		stage.Join(t, cluster1, "broken", []byte("this is no kubeconfig"), nil) // the program says so in an event
		for _, account := range []*stage.Account{local, source, target2} {
			account.NeedsAll(t)
		}
	})
}

// TestContextsOfAKubeconfig are the source and the targets, if the flags say so.
func TestContextsOfAKubeconfig(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	file := stage.NewAccount(t, f.Local, mctest.Rights{File: "rbac/source.yaml"}).File(t)
	contexts, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := clientcmd.Load(stage.NewAccount(t, f.Members[0], mctest.Rights{File: "rbac/target.yaml"}).Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	contexts.Clusters["there"], contexts.AuthInfos["there"], contexts.Contexts["there"] = other.Clusters["mctest"], other.AuthInfos["mctest"], other.Contexts["mctest"].DeepCopy()
	contexts.Contexts["there"].Cluster, contexts.Contexts["there"].AuthInfo = "there", "there"
	if err := clientcmd.WriteToFile(*contexts, file); err != nil {
		t.Fatal(err)
	}
	stage.Start(t, "--kubeconfig", file, "--contexts", "mctest,there", "--source", "mctest", "--metrics", "0")
	create(t, f.Local, deployment("default", "nginx"))
	becomes(t, f.Members[0], "nginx", "a copy", exists)
}

func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"team": "a"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.27"}}},
			},
		},
	}
}

func create(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, cp *mctest.ControlPlane, obj client.Object) {
	t.Helper()
	if err := cp.Client().Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func patch(t *testing.T, cp *mctest.ControlPlane, obj client.Object, content string) {
	t.Helper()
	if err := cp.Client().Patch(t.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(content))); err != nil {
		t.Fatal(err)
	}
}

func label(t *testing.T, cp *mctest.ControlPlane, obj client.Object, labels string) {
	t.Helper()
	patch(t, cp, obj, `{"metadata":{"labels":`+labels+`}}`)
}

func scale(t *testing.T, cp *mctest.ControlPlane, name string, replicas int) {
	t.Helper()
	patch(t, cp, deployment("default", name), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// get returns a Deployment, nil if there is none.
func get(t *testing.T, cp *mctest.ControlPlane, namespace, name string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	err := cp.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func exists(*appsv1.Deployment) bool { return true }

func hasReplicas(n int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n }
}

// becomes waits until a cluster has a Deployment in the namespace default that is as wanted.
func becomes(t *testing.T, cp *mctest.ControlPlane, name, what string, is func(*appsv1.Deployment) bool) (d *appsv1.Deployment) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("%s of %s is %s", name, cp.Name, what), func() bool {
		d = get(t, cp, "default", name)
		return d != nil && is(d)
	})
	return d
}

func isGone(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("%s of %s is gone", name, cp.Name), func() bool { return get(t, cp, "default", name) == nil })
}

// touched reports whether the copier has written to a Deployment.
func touched(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "deploymentcopy" })
}

// told waits until a Warning event on an original names a cluster.
func told(t *testing.T, cp *mctest.ControlPlane, name, reason, cluster string) {
	t.Helper()
	stage.Soon(t, fmt.Sprintf("an event %s about %s on %s", reason, cluster, name), func() bool {
		list := &eventsv1.EventList{}
		if err := cp.Client().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Type == corev1.EventTypeWarning && e.Regarding.Name == name && e.Reason == reason && strings.Contains(e.Note, cluster)
		})
	})
}
