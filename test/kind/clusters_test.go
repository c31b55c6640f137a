package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
)

const (
	// enabled is the environment variable that has these tests run. They create clusters, which takes minutes. With the value
	// "keep" the clusters stay, and are used again.
	enabled = "E2E_KIND"
	keep    = "keep"
	// imageEnv names an image for the nodes, for machines that cannot load kind's own.
	imageEnv = "KIND_NODE_IMAGE"

	prefix = "fleet-e2e-" // of the names of kind's clusters
	hub    = "hub"
	east   = "east"
	west   = "west"

	// patience is how long a test waits for what must happen.
	patience = 3 * time.Minute
	often    = 250 * time.Millisecond
	root     = "../.."
)

// clusters are the kind clusters of a test, by the names that the fleet has for them.
type clusters struct {
	kind       *cluster.Provider
	kubeconfig string
	images     []string // archives
}

// newClusters creates the clusters, and deletes them at the end. Those that an interrupted run has left are deleted first.
func newClusters(t *testing.T) *clusters {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skipf("%s is not set: make e2e-kind sets it", enabled)
	}
	option, err := cluster.DetectNodeProvider()
	must(t, err)
	c := &clusters{kind: cluster.NewProvider(option), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if os.Getenv(enabled) != keep {
		must(t, c.deleteAll())
		t.Cleanup(func() {
			if err := c.deleteAll(); err != nil {
				t.Error(err)
			}
		})
	}
	c.images = buildImages(t)
	for _, name := range []string{hub, east, west} {
		c.create(t, name)
	}
	return c
}

// create creates a cluster, and gives it the images.
func (c *clusters) create(t *testing.T, name string) {
	t.Helper()
	begun := time.Now()
	all, err := c.kind.List()
	must(t, err)
	if slices.Contains(all, prefix+name) {
		must(t, c.kind.ExportKubeConfig(prefix+name, c.kubeconfig, false))
	} else {
		must(t, c.kind.Create(prefix+name, cluster.CreateWithKubeconfigPath(c.kubeconfig), cluster.CreateWithNodeImage(os.Getenv(imageEnv))))
	}
	created := time.Now()
	nodes, err := c.kind.ListInternalNodes(prefix + name)
	must(t, err)
	for _, node := range nodes {
		for _, archive := range c.images {
			must(t, load(archive, func(f *os.File) error { return nodeutils.LoadImageArchive(node, f) }))
		}
	}
	t.Logf("%s was created in %s, and has its images after %s", name, created.Sub(begun).Round(time.Second), time.Since(created).Round(time.Second))
}

func load(archive string, into func(*os.File) error) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return into(f)
}

func (c *clusters) delete(t *testing.T, name string) {
	t.Helper()
	must(t, c.kind.Delete(prefix+name, c.kubeconfig))
}

func (c *clusters) deleteAll() error {
	all, err := c.kind.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range all {
		if slices.Contains([]string{prefix + hub, prefix + east, prefix + west}, name) {
			errs = append(errs, c.kind.Delete(name, c.kubeconfig))
		}
	}
	return errors.Join(errs...)
}

func contextOf(name string) string { return "kind-" + prefix + name }

// client returns a client of a cluster, with the administrator's rights.
func (c *clusters) client(t *testing.T, name string) client.WithWatch {
	t.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: contextOf(name)},
	).ClientConfig()
	must(t, err)
	made, err := client.NewWithWatch(config, client.Options{})
	must(t, err)
	return made
}

// kubectl runs kubectl as a user does, and returns what it prints.
func (c *clusters) kubectl(t *testing.T, name string, args ...string) string {
	t.Helper()
	return c.run(t, "kubectl", append([]string{"--context", contextOf(name)}, args...)...)
}

// join runs the documented command. The nodes of kind's clusters reach each other by their names.
func (c *clusters) join(t *testing.T, name string, flags ...string) {
	t.Helper()
	args := append(flags, "-s", "https://"+prefix+name+"-control-plane:6443", name, contextOf(hub), contextOf(name)) //nolint:gocritic // flags is not used again
	c.run(t, root+"/examples/operator/deploy/join.sh", args...)
}

// apply applies an object that is written as JSON.
func (c *clusters) apply(t *testing.T, name, object string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.json")
	must(t, os.WriteFile(file, []byte(object), 0o600))
	c.kubectl(t, name, "apply", "-f", file)
}

func (c *clusters) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	output, err := c.try(t.Context(), program, args...)
	must(t, err)
	return output
}

func (c *clusters) try(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), strings.Join(args, " "), err, stderr.String())
	}
	return string(output), nil
}

// buildImages puts the programs into images, and returns the archives.
func buildImages(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	programs := []struct{ folder, tag string }{
		{"examples/operator", "fleet.example.com/operator:dev"},
		{"examples/deploymentcopy", "fleet.example.com/deploymentcopy:dev"},
		{"examples/foo", "fleet.example.com/foo:dev"},
		{"examples/jobs", "fleet.example.com/jobs:dev"},
		{"test/kind/standin", "docker.io/library/nginx:1.29"}, // Deployments of Foos have it
		{"test/kind/standin", "fleet.example.com/standin:dev"},
	}
	archives := make([]string, 0, len(programs))
	for _, i := range programs {
		archive := filepath.Join(folder, strings.NewReplacer("/", "-", ":", "-").Replace(i.tag)+".tar")
		archives = append(archives, archive)
		cmd := exec.CommandContext(t.Context(), "go", "run", "./hack/image", "--tag", i.tag, "--output", archive, "./"+i.folder)
		cmd.Dir = root
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("making the image of %s: %v\n%s", i.folder, err, output)
		}
	}
	return archives
}

// eventually waits until there is no error any more.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), often, patience, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("not within %s: %s: %v", patience, what, last)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
