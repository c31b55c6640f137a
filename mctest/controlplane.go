package mctest

import (
	"fmt"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ControlPlane is a cluster without nodes, and without controllers unless a test starts some: an etcd and a kube-apiserver
// of its own.
type ControlPlane struct {
	// Name is "local", "member-1", "member-2" and so on.
	Name string
	// APIServer and Etcd are its two processes.
	APIServer, Etcd *Process

	server     *server
	ledger     *ledger
	client     client.Client
	kubeconfig []byte
}

// newControlPlane makes s the control plane of the given name.
func newControlPlane(name string, s *server, l *ledger, o Options) (*ControlPlane, error) {
	s.apiServer.what, s.etcd.what = "the API server of "+name, "the etcd of "+name
	if err := installCRDs(s.config, o); err != nil {
		return nil, fmt.Errorf("installing CRDs in %s: %w", name, err)
	}
	cl, err := client.New(s.config, client.Options{Scheme: o.Scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", name, err)
	}
	kubeconfig, err := Kubeconfig(s.config)
	if err != nil {
		return nil, err
	}
	return &ControlPlane{
		Name: name, APIServer: s.apiServer, Etcd: s.etcd,
		server: s, ledger: l, client: cl, kubeconfig: kubeconfig,
	}, nil
}

func installCRDs(config *rest.Config, o Options) error {
	if len(o.CRDs)+len(o.CRDPaths) == 0 {
		return nil
	}
	crds := make([]*apiextensionsv1.CustomResourceDefinition, len(o.CRDs))
	for i, crd := range o.CRDs {
		crds[i] = crd.DeepCopy() // installing writes to it
	}
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{
		CRDs: crds, Paths: o.CRDPaths, ErrorIfPathMissing: true, Scheme: o.Scheme, MaxTime: startTimeout,
	})
	return err
}

// Config returns a new copy of the way to reach the control plane as its administrator.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.server.config) }

// Kubeconfig returns the administrator's kubeconfig. [Kubeconfig] makes one of any other config.
func (cp *ControlPlane) Kubeconfig() []byte { return slices.Clone(cp.kubeconfig) }

// Client returns the administrator's client, which reads from the API server, not from a cache.
func (cp *ControlPlane) Client() client.Client { return cp.client }

// Stop kills the API server. etcd keeps running, with its data. See [Process.Stop].
func (cp *ControlPlane) Stop(tb testing.TB) {
	tb.Helper()
	must(tb, cp.APIServer.Stop())
}

// Restart starts the API server again and waits until it is ready. See [Process.Restart].
func (cp *ControlPlane) Restart(tb testing.TB) {
	tb.Helper()
	must(tb, cp.APIServer.Restart())
}

// Freeze suspends the API server, so that it no longer answers. See [Process.Freeze].
func (cp *ControlPlane) Freeze(tb testing.TB) {
	tb.Helper()
	must(tb, cp.APIServer.Freeze())
}

// Thaw resumes the frozen API server. See [Process.Thaw].
func (cp *ControlPlane) Thaw(tb testing.TB) {
	tb.Helper()
	must(tb, cp.APIServer.Thaw())
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal("mctest:", err)
	}
}
