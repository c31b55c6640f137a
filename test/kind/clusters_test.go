package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodes"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
)

const (
	// enabled is the environment variable that has these tests run. They create clusters, which takes minutes. With the value
	// "keep" the clusters stay, and are used again.
	enabled = "E2E_KIND"
	keep    = "keep"
	// imageEnv names an image for the nodes, for machines that cannot load kind's own.
	imageEnv = "KIND_NODE_IMAGE"
	// outsideEnv is what comes before a command that needs a network with a way out, where this test is in one without.
	outsideEnv = "KIND_OUTSIDE"
	// lock is an address that a test listens at while the clusters of this machine are its own.
	lock = "127.0.0.1:37016"

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
	later      later
}

// newClusters creates the clusters, and deletes them at the end. Those that an interrupted run has left are deleted first.
func newClusters(t *testing.T) *clusters {
	t.Helper()
	if os.Getenv(enabled) == "" {
		t.Skipf("%s is not set: make e2e-kind sets it", enabled)
	}
	alone, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", lock)
	if err != nil {
		t.Fatalf("another run of this test seems to use the clusters: %v", err)
	}
	t.Cleanup(func() { _ = alone.Close() })
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
	c.createAll(t)
	return c
}

// createAll makes the operator's images meanwhile, and the members side by side. The hub is first: kind makes its network with it, and
// would do so twice. What comes after the operator is made while that is tested.
func (c *clusters) createAll(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	var all errgroup.Group
	all.Go(func() error { return makeImages(t.Context(), folder, ofOperator) })
	err := c.create(t, hub)
	if err == nil {
		all.Go(func() error { return c.create(t, east) })
		all.Go(func() error { return c.create(t, west) })
	}
	must(t, errors.Join(err, all.Wait()))
	must(t, c.load(hub, folder, ofOperator))
	c.later.begin(t, c, folder)
}

// create creates a cluster, unless it was kept.
func (c *clusters) create(t *testing.T, name string) error {
	t.Helper()
	begun := time.Now()
	all, err := c.kind.List()
	if err != nil {
		return err
	}
	if slices.Contains(all, prefix+name) {
		return c.kind.ExportKubeConfig(prefix+name, c.kubeconfig, false)
	}
	if err := c.kind.Create(prefix+name, cluster.CreateWithKubeconfigPath(c.kubeconfig), cluster.CreateWithNodeImage(os.Getenv(imageEnv))); err != nil {
		return fmt.Errorf("creating %s: %w", name, err)
	}
	t.Logf("%s was created in %s", name, time.Since(begun).Round(time.Second))
	return nil
}

// load gives a cluster images that were made.
func (c *clusters) load(name, folder string, images []image) error {
	for _, i := range images {
		if err := c.loadArchive(name, i.archive(folder)); err != nil {
			return fmt.Errorf("loading the image of %s in %s: %w", i.folder, name, err)
		}
	}
	return nil
}

// loadArchive does what kind load image-archive does.
func (c *clusters) loadArchive(name, archive string) error {
	nodes, err := c.kind.ListInternalNodes(prefix + name)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := loadInto(node, archive); err != nil {
			return err
		}
	}
	return nil
}

func loadInto(node nodes.Node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return nodeutils.LoadImageArchive(node, f)
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
	var deleting errgroup.Group
	for _, name := range all {
		if slices.Contains([]string{prefix + hub, prefix + east, prefix + west}, name) {
			// Each has a file of its own: kind locks it, and does not wait for the lock.
			deleting.Go(func() error { return c.kind.Delete(name, c.kubeconfig+"-"+name) })
		}
	}
	return deleting.Wait()
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

// logsIfItFails shows what the pods of a Deployment of the hub have logged, if the test fails.
func (c *clusters) logsIfItFails(t *testing.T, namespace, deployment string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			logs, err := c.try(context.WithoutCancel(t.Context()), "kubectl", "--context", contextOf(hub), "--namespace", namespace,
				"logs", "deployment/"+deployment, "--all-pods", "--tail", "60")
			t.Logf("%s has logged, error %v:\n%s", deployment, err, logs)
		}
	})
}

// join runs the documented command. The nodes of kind's clusters reach each other by their names.
func (c *clusters) join(t *testing.T, name string, flags ...string) {
	t.Helper()
	args := append(flags, "-s", "https://"+prefix+name+"-control-plane:6443", name, contextOf(hub), contextOf(name)) //nolint:gocritic // flags is not used again
	c.run(t, root+"/examples/operator/deploy/join.sh", args...)
}

// apply applies objects that are written as JSON or YAML.
func (c *clusters) apply(t *testing.T, name, objects string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	must(t, os.WriteFile(file, []byte(objects), 0o600))
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

// outside runs a program in a folder, where the module proxy can be reached, and returns what it prints.
func outside(ctx context.Context, folder string, env []string, program ...string) (string, error) {
	words := append(strings.Fields(os.Getenv(outsideEnv)), program...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(program, " "), err, output, &stderr)
	}
	return string(output), nil
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
