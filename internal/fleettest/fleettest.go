// Package fleettest runs fleets whose members a test reports itself.
package fleettest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/closed"
)

// Provider is a provider of what a test tells it, by the methods of fleet.Members. What it is told before it runs is
// reported when it does. It is safe for concurrent use.
type Provider struct {
	// Beside is run too. Default: nothing.
	Beside fleet.Provider
	// OnRefresh is its method Refresh. It must not be changed while the provider runs. Default: there is nothing fresh.
	OnRefresh func(ctx context.Context, name fleet.ClusterName) error

	mu      sync.Mutex    // guards what follows
	members fleet.Members // nil before it runs
	told    []fleet.Member
}

var (
	_ fleet.Members   = (*Provider)(nil)
	_ fleet.Refresher = (*Provider)(nil)
)

// Run implements fleet.Provider.
func (p *Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	if err := p.begin(members); err != nil {
		return err
	}
	if p.Beside != nil {
		return p.Beside.Run(ctx, local, members)
	}
	<-ctx.Done()
	return nil
}

func (p *Provider) begin(members fleet.Members) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members = members
	for _, m := range p.told {
		if err := members.Set(m); err != nil {
			return err
		}
	}
	return nil
}

// Set implements fleet.Members.
func (p *Provider) Set(m fleet.Member) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members == nil {
		p.told = append(p.told, m)
		return m.Validate()
	}
	return p.members.Set(m)
}

// Leave implements fleet.Members, for a provider that runs.
func (p *Provider) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members.Leave(m)
}

// Remove implements fleet.Members.
func (p *Provider) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members == nil {
		p.told = slices.DeleteFunc(p.told, func(m fleet.Member) bool { return m.Name == name })
		return closed.Channel()
	}
	return p.members.Remove(name)
}

// SetProblem implements fleet.Members, for a provider that runs.
func (p *Provider) SetProblem(problem fleet.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members.SetProblem(problem)
}

// Refresh implements fleet.Refresher.
func (p *Provider) Refresh(ctx context.Context, name fleet.ClusterName) error {
	if p.OnRefresh == nil {
		return nil
	}
	return p.OnRefresh(ctx, name)
}

// Running is a fleet that runs, and what its provider reports to.
type Running struct {
	*fleet.Fleet
	fleet.Members
}

// Run runs a fleet until the test ends, or stop is called, which returns when it is drained. stop may be called again.
func Run(tb testing.TB, opts fleet.Options) (running Running, stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := fleet.New(opts)
	given, done := make(chan fleet.Members), make(chan struct{})
	go func() {
		defer close(done)
		err := f.Run(ctx, nil, fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
			given <- members
			<-ctx.Done()
			return nil
		}))
		if err != nil {
			tb.Errorf("running the fleet: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	tb.Cleanup(stop)
	return Running{f, <-given}, stop
}
