package mctest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Options say what a fleet consists of. The zero value is a local cluster alone.
type Options struct {
	// Clusters is how many members the fleet has at first, beside the local cluster.
	Clusters int

	// CRDs and the files and folders in CRDPaths are installed in every cluster.
	CRDs     []*apiextensionsv1.CustomResourceDefinition
	CRDPaths []string

	// Scheme is that of the clients. Default: client-go's scheme, which has the types of Kubernetes.
	Scheme *runtime.Scheme
}

// Fleet is a local cluster and members. It is not safe for concurrent use, its control planes are.
type Fleet struct {
	// Local is the cluster that a manager would run against, often called the hub.
	Local *ControlPlane
	// Members are named member-1, member-2 and so on.
	Members []*ControlPlane

	options Options
	host    host
	planes  []*ControlPlane // all, whatever callers make of the fields above: a server that nothing refers to is ended
}

// host is where the servers of a fleet come from and go back to.
type host interface {
	take(ctx context.Context) (*server, error)
	giveBack(s *server) error
	// ledger is where the accounts of its servers note what they need.
	ledger() *ledger
}

// Start starts a fleet of new control planes, which end with the test. Tests that can share control planes start
// faster with a [Pool].
func Start(tb testing.TB, o Options) *Fleet {
	tb.Helper()
	f, err := New(tb.Context(), o)
	must(tb, err)
	tb.Cleanup(func() {
		mustClose(tb, f)
		if err := f.host.ledger().settle(!tb.Failed()); err != nil {
			tb.Error("mctest:", err)
		}
	})
	return f
}

// New starts a fleet of new control planes, for programs that are no tests. ctx bounds the start alone. The caller
// closes the fleet.
func New(ctx context.Context, o Options) (*Fleet, error) {
	s, err := newStarter(ctx)
	if err != nil {
		return nil, err
	}
	return newFleet(ctx, s, o)
}

func newFleet(ctx context.Context, h host, o Options) (*Fleet, error) {
	planes := make([]*ControlPlane, 1+o.Clusters)
	var group errgroup.Group
	for i := range planes {
		group.Go(func() (err error) {
			planes[i], err = startControlPlane(ctx, h, name(i), o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, cp := range planes {
			if cp != nil {
				err = errors.Join(err, h.giveBack(cp.server))
			}
		}
		return nil, err
	}
	return &Fleet{Local: planes[0], Members: slices.Clone(planes[1:]), options: o, host: h, planes: planes}, nil
}

// name of the i-th control plane of a fleet.
func name(i int) string {
	if i == 0 {
		return "local"
	}
	return fmt.Sprintf("member-%d", i)
}

func startControlPlane(ctx context.Context, h host, name string, o Options) (*ControlPlane, error) {
	s, err := h.take(ctx)
	if err != nil {
		return nil, err
	}
	cp, err := newControlPlane(name, s, h.ledger(), o)
	if err != nil {
		return nil, errors.Join(err, h.giveBack(s))
	}
	return cp, nil
}

// Add starts one more member. ctx bounds the start alone.
func (f *Fleet) Add(ctx context.Context) (*ControlPlane, error) {
	cp, err := startControlPlane(ctx, f.host, name(len(f.planes)), f.options)
	if err != nil {
		return nil, err
	}
	f.Members, f.planes = append(f.Members, cp), append(f.planes, cp)
	return cp, nil
}

// AddMember starts one more member, which ends with the fleet.
func (f *Fleet) AddMember(tb testing.TB) *ControlPlane {
	tb.Helper()
	cp, err := f.Add(tb.Context())
	must(tb, err)
	return cp
}

// Close ends all control planes of the fleet and removes their files. Fleets of [Start] and [Pool.Start] are closed at
// the end of their test.
func (f *Fleet) Close() error {
	var group errgroup.Group
	for _, cp := range f.planes {
		group.Go(func() error { return f.host.giveBack(cp.server) })
	}
	return group.Wait()
}

func mustClose(tb testing.TB, f *Fleet) {
	tb.Helper()
	if err := f.Close(); err != nil {
		tb.Error("mctest: closing the fleet:", err)
	}
}
