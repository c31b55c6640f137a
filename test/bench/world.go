package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// world is one real API server that is reached at any address of 127.0.0.0/8: members are as many servers as far as
// connections, TLS sessions and watches are concerned.
type world struct {
	env        *envtest.Environment
	config     *rest.Config
	port       string
	kubeconfig []byte
	client     client.Client
	dir        string // of the program of the peers
	peers      string
	shared     int // how often replicas have shared members
}

const startTimeout = 2 * time.Minute

// inWorld measures in a new world.
func inWorld(ctx context.Context, do func(w *world, ctx context.Context) error) error {
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(w, ctx), w.close())
}

// newWorld starts the API server and builds the program of the peers.
func newWorld(ctx context.Context) (_ *world, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return nil, errors.New("set KUBEBUILDER_ASSETS to the folder that `make assets` prints, or use `make bench`")
	}
	w := &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := w.buildPeers(ctx); err != nil {
		return nil, err
	}
	progressf("starting an API server")
	if err := w.startServer(ctx); err != nil {
		return nil, err
	}
	if w.kubeconfig, err = mctest.Kubeconfig(w.config); err != nil {
		return nil, err
	}
	if w.client, err = client.New(w.config, client.Options{}); err != nil {
		return nil, err
	}
	// What members have to reconcile.
	return w, w.client.Create(ctx, configMap(metav1.NamespaceDefault, "object"))
}

func (w *world) buildPeers(ctx context.Context) error {
	module, err := moduleFolder(ctx)
	if err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	progressf("building the peers")
	w.peers = filepath.Join(w.dir, "peers")
	source := filepath.Join(module, "test", "bench", "peers")
	build := exec.CommandContext(ctx, "go", "build", "-C", source, "-o", w.peers, ".") //nolint:gosec // it is our own module
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", source, err, output)
	}
	return nil
}

func (w *world) startServer(ctx context.Context) error {
	var listen net.ListenConfig
	free, err := listen.Listen(ctx, "tcp", "0.0.0.0:0")
	if err != nil {
		return err
	}
	if _, w.port, err = net.SplitHostPort(free.Addr().String()); err != nil {
		return err
	}
	if err := free.Close(); err != nil {
		return err
	}
	existing := false
	w.env = &envtest.Environment{UseExistingCluster: &existing, ControlPlaneStartTimeout: startTimeout}
	server := w.env.ControlPlane.GetAPIServer()
	server.Address, server.Port = "0.0.0.0", w.port
	if w.config, err = w.env.Start(); err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	w.config = w.at(0, w.config)
	return nil
}

// at returns the way to the server at the i-th address.
func (w *world) at(i int, cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Host = fmt.Sprintf("https://127.0.%d.%d:%s", i/250, 1+i%250, w.port)
	cfg.ServerName = "localhost"
	cfg.QPS = -1 // unlimited; it is not in kubeconfigs
	return cfg
}

func (w *world) close() error {
	var err error
	if w.env != nil {
		err = w.env.Stop()
	}
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// createNamespace creates a namespace, with the Secrets of so many members, unless it is there.
func (w *world) createNamespace(ctx context.Context, name string, members int) error {
	err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := each(ctx, members, func(ctx context.Context, i int) error {
		return w.createMember(ctx, name, memberName(i), w.at(i+1, w.config))
	}); err != nil {
		return fmt.Errorf("creating %d Secrets: %w", members, err)
	}
	return nil
}

func memberName(i int) string { return fmt.Sprintf("member-%04d", i) }

// createMember creates the Secret of a member.
func (w *world) createMember(ctx context.Context, namespace, name string, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	// Clusters have authorities of their own. What is the same in two kubeconfigs would make the subjects share what
	// they cannot share between real clusters; PEM allows for text between the certificates.
	cfg.CAData = fmt.Appendf(nil, "%s\n%s", name, cfg.CAData)
	kubeconfig, err := mctest.Kubeconfig(cfg)
	if err != nil {
		return err
	}
	return w.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{measure.SecretLabel: labelled}},
		Data:       map[string][]byte{measure.SecretKey: kubeconfig},
	})
}

// labelled is the value of labels that say nothing more.
const labelled = "true"

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// writers is how many requests are written side by side.
const writers = 8

// each does something n times, side by side.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	return eachOf(ctx, n, writers, do)
}

// eachOf does something n times, so many at once.
func eachOf(ctx context.Context, n, atOnce int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

func progressf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
