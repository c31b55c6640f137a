package kind_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kindcluster "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/exec"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kind"
)

// creationPatience is how long kind may take for a cluster. The image of the nodes has to be loaded first.
const creationPatience = 8 * time.Minute

// imageEnv names an image for the nodes, for machines that cannot load kind's own.
const imageEnv = "KIND_NODE_IMAGE"

// TestARealClusterIsFollowed has kind create a cluster. It is skipped where there is no container engine.
func TestARealClusterIsFollowed(t *testing.T) {
	option, err := kindcluster.DetectNodeProvider()
	if err != nil {
		t.Skipf("there is no container engine, so kind can create no cluster: %v", err)
	}
	library := kindcluster.NewProvider(option)
	if _, err := library.List(); err != nil {
		output := ""
		if run := exec.RunErrorForError(err); run != nil {
			output = strings.TrimSpace(string(run.Output))
		}
		t.Skipf("the container engine does not work, so kind can create no cluster: %v: %s", err, output)
	}
	const name = "fleet-runtime-test"
	t.Cleanup(func() {
		if err := library.Delete(name, ""); err != nil {
			t.Error(err)
		}
	})
	r := start(t, kind.Provider{Clusters: []string{name}})
	r.becomes(name, patience, withReason(kind.ReasonNoCluster))

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, library.Create(name, kindcluster.CreateWithKubeconfigPath(kubeconfig), kindcluster.CreateWithNodeImage(os.Getenv(imageEnv))))
	r.becomes(name, creationPatience, ready)
	must(t, library.Delete(name, kubeconfig))
	r.becomes(name, patience, func(s fleet.Status, _ bool) bool { return s.Reason == kind.ReasonNoCluster && !s.Engaged() })
}
