package providertest

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// broken is a kind of provider that does one thing wrong.
type broken struct {
	fault string
	make  func(m *memory) fleet.Provider
	fails map[string]string // the cases that find it, with a part of what they say
}

// running returns a provider.
func running(run func(ctx context.Context, local cluster.Cluster, members fleet.Members) error) fleet.Provider {
	return fleet.NewProvider("broken", run)
}

// filter stands between a good provider and the fleet.
type filter struct {
	fleet.Members

	ctx    context.Context // of Run
	set    func(ctx context.Context, to fleet.Members, m fleet.Member) error
	leave  func(ctx context.Context, to fleet.Members, m fleet.Member) (left <-chan struct{}, err error)
	remove func(ctx context.Context, to fleet.Members, name fleet.ClusterName) (drained <-chan struct{})
}

func (f filter) Set(m fleet.Member) error {
	if f.set == nil {
		return f.Members.Set(m)
	}
	return f.set(f.ctx, f.Members, m)
}

func (f filter) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	if f.leave == nil {
		return f.Members.Leave(m)
	}
	return f.leave(f.ctx, f.Members, m)
}

func (f filter) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	if f.remove == nil {
		return f.Members.Remove(name)
	}
	return f.remove(f.ctx, f.Members, name)
}

// filtered makes good providers, each behind a filter of its own.
func filtered(newFilter func(m *memory) filter) func(m *memory) fleet.Provider {
	return func(m *memory) fleet.Provider {
		f := newFilter(m)
		return running(func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
			f.Members, f.ctx = members, ctx
			return good(m).Run(ctx, local, f)
		})
	}
}

// changed makes good providers whose reports are changed.
func changed(newChange func() func(m *fleet.Member)) func(m *memory) fleet.Provider {
	return filtered(func(*memory) filter {
		change := newChange()
		return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
			change(&m)
			return to.Set(m)
		}}
	})
}

// chosen makes good providers of which only some reports reach the fleet.
func chosen(newChoice func(m *memory) func(m fleet.Member) bool) func(m *memory) fleet.Provider {
	return filtered(func(m *memory) filter {
		choice := newChoice(m)
		return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
			if !choice(m) {
				return nil
			}
			return to.Set(m)
		}}
	})
}

// differing makes providers that differ from a good one.
func differing(differ func(f *follower)) func(m *memory) fleet.Provider {
	return func(m *memory) fleet.Provider {
		f := good(m)
		differ(&f)
		return f
	}
}

// there returns the names in the memory.
func there(m *memory) map[fleet.ClusterName]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[fleet.ClusterName]bool{}
	for _, e := range m.entries {
		names[fleet.ClusterName(e.Name)] = true
	}
	return names
}

// host is empty for a member that cannot be used.
func host(m fleet.Member) string {
	if m.Config == nil {
		return ""
	}
	return m.Config.Host
}

func brokenProviders() []broken {
	return slices.Concat(brokenFollowers(), brokenInTrouble(), brokenManners())
}
