package main

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &mctest.Pool{}, main)) }

func TestTheContextsAreThoseOfClusters(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := stage.Start(t, "--file", file, "east", "west")
	p.Writes("The contexts of " + file)
	hosts := map[string]bool{}
	for _, name := range []string{"east", "west"} {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		cl, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.List(t.Context(), &corev1.NamespaceList{}); err != nil {
			t.Errorf("the context %s: %v", name, err)
		}
		hosts[config.Host] = true
	}
	if len(hosts) != 2 {
		t.Errorf("the two contexts are of %d clusters", len(hosts))
	}
	p.Stop()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig was left: %v", err)
	}
}
