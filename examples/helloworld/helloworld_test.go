package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestPodsOfAllMembersAreGreeted with the rights of the manifests and no others (AS-1). That updates coalesce is shown where
// a reconcile can be held up: by TestHelloWorld in test/e2e.
func TestPodsOfAllMembersAreGreeted(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	cluster1, cluster2, cluster3 := f.Local, f.Members[0], f.Members[1] // the program runs in cluster1, which is a member too
	local := stage.NewAccount(t, cluster1, mctest.Rights{File: "rbac/controller.yaml"})
	members := map[string]*stage.Account{
		"cluster1": stage.NewAccount(t, cluster1, mctest.Rights{File: "rbac/member.yaml"}),
		"cluster2": stage.NewAccount(t, cluster2, mctest.Rights{File: "rbac/member.yaml"}),
		"cluster3": stage.NewAccount(t, cluster3, mctest.Rights{File: "rbac/member.yaml"}),
	}
	create(t, cluster1, "nginx")
	create(t, cluster2, "nginx")
	first := stage.Join(t, cluster1, "cluster1", members["cluster1"].Kubeconfig(t), nil)
	stage.Join(t, cluster1, "cluster2", members["cluster2"].Kubeconfig(t), nil)
	p := stage.Start(t, "--kubeconfig", local.File(t), "--metrics", "0")

	t.Run("the Pods of all clusters are reconciled, and no others", func(t *testing.T) {
		want := map[string]bool{"cluster1/default/nginx": true, "cluster2/default/nginx": true}
		stage.Soon(t, "exactly the two Pods are logged", func() bool { return cmp.Equal(want, greeted(p)) })
	})
	t.Run("a cluster is added", func(t *testing.T) {
		create(t, cluster3, "nginx")
		stage.Join(t, cluster1, "cluster3", members["cluster3"].Kubeconfig(t), nil)
		p.WritesSoon("Hello", "cluster=cluster3", "namespace=default", "name=nginx")
	})
	t.Run("a cluster is removed", func(t *testing.T) {
		if err := cluster1.Client().Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		p.Writes("Disengaged", "cluster=cluster1")
		create(t, cluster1, "late")
		create(t, cluster2, "late")
		p.WritesSoon("Hello", "cluster=cluster2", "name=late")
		if lines := p.Lines("cluster=cluster1", "name=late"); len(lines) > 0 {
			t.Errorf("a Pod of the cluster that has left is logged: %q", lines)
		}
	})
	t.Run("a Pod goes", func(t *testing.T) {
		if err := cluster2.Client().Delete(t.Context(), pod("late")); err != nil {
			t.Fatal(err)
		}
		p.WritesSoon("Goodbye", "cluster=cluster2", "name=late")
	})
	t.Run("no right is missing, and none is too much", func(t *testing.T) {
		stage.Join(t, cluster1, "broken", []byte("this is no kubeconfig"), nil) // the program says so in an event
		for _, account := range append(slices.Collect(maps.Values(members)), local) {
			account.NeedsAll(t)
		}
	})
}

func TestContextsOfAKubeconfigAreMembers(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	create(t, f.Local, "nginx")
	account := stage.NewAccount(t, f.Local, mctest.Rights{File: "rbac/member.yaml"})
	p := stage.Start(t, "--kubeconfig", account.File(t), "--contexts", "mctest", "--metrics", "0")
	p.Writes("Hello", "cluster=mctest", "namespace=default", "name=nginx")
}

var greeting = regexp.MustCompile(`msg=Hello .*\bcluster=(\S+) .*\bnamespace=(\S+) name=(\S+)`)

// greeted returns which Pods were logged.
func greeted(p *stage.Program) map[string]bool {
	found := map[string]bool{}
	for _, line := range p.Lines("msg=Hello") {
		if m := greeting.FindStringSubmatch(line); m != nil {
			found[fmt.Sprintf("%s/%s/%s", m[1], m[2], m[3])] = true
		}
	}
	return found
}

func create(t *testing.T, cp *mctest.ControlPlane, name string) {
	t.Helper()
	if err := cp.Client().Create(t.Context(), pod(name)); err != nil {
		t.Fatal(err)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
	}
}
