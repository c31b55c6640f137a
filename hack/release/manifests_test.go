package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// TestAnAPIServerTakesTheManifests as kubectl sends them, each file in one command and on a cluster of its own kind. They are applied twice,
// as with an update.
func TestAnAPIServerTakesTheManifests(t *testing.T) {
	r := release{root: repositoryRoot, dist: t.TempDir(), version: "v0.1.0"}
	i := slices.IndexFunc(programs, func(p program) bool { return p.name == "operator" })
	if err := r.manifests(programs[i]); err != nil {
		t.Fatal(err)
	}
	for name := range programs[i].manifests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := &envtest.Environment{}
			if _, err := env.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := env.Stop(); err != nil {
					t.Error(err)
				}
			})
			kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), "--kubeconfig", kubeconfig,
					"--cache-dir", t.TempDir(), "apply", "--validate=strict", "-f", filepath.Join(r.dist, "operator_v0.1.0_"+name))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", cmd, err, out)
				}
			}
		})
	}
}
