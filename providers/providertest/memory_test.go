package providertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// memory is a source of which nothing is expected but that it is correct.
type memory struct {
	mu      sync.Mutex // guards what follows
	news    chan struct{}
	entries []entry // the oldest first
	noticed func()  // nil while the source can be read
}

// entry is what the source has on a cluster.
type entry struct {
	Description

	broken  bool
	leaving bool
}

func newMemory() *memory { return &memory{news: make(chan struct{})} }

func (m *memory) change(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.news)
	m.news = make(chan struct{})
}

var errAway = errors.New("the source is away")

// read returns what is there, and a channel that is closed when that has changed.
func (m *memory) read() ([]entry, <-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noticed != nil {
		m.noticed()
		return nil, m.news, errAway
	}
	return slices.Clone(m.entries), m.news, nil
}

func (m *memory) put(e entry) {
	m.change(func() {
		if i := m.find(e.Name); i >= 0 {
			m.entries[i] = e
			return
		}
		m.entries = append(m.entries, e)
	})
}

func (m *memory) find(name string) int {
	return slices.IndexFunc(m.entries, func(e entry) bool { return e.Name == name })
}

// youngest returns the youngest entry of the name.
func (m *memory) youngest(name string) (youngest entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if e.Name == name {
			youngest = e
		}
	}
	return youngest
}

// source returns the memory as what the provider that is made of it discovers from.
func (m *memory) source(provider func(m *memory) fleet.Provider) Source {
	return Source{
		Provider: func() fleet.Provider { return provider(m) },
		Set:      func(_ *testing.T, d Description) { m.put(entry{Description: d}) },
		Remove: func(_ *testing.T, name string) {
			m.change(func() { i := m.find(name); m.entries = slices.Delete(m.entries, i, i+1) })
		},
		Leave: func(_ *testing.T, name string) {
			m.change(func() { m.entries[m.find(name)].leaving = true })
		},
		Rename: func(_ *testing.T, from, to string) {
			m.change(func() { m.entries[m.find(from)].Name = to })
		},
		Break: func(_ *testing.T, d Description) { m.put(entry{Description: d, broken: true}) },
		Duplicate: func(_ *testing.T, d Description) {
			m.change(func() { m.entries = append(m.entries, entry{Description: d}) })
		},
		Interrupt: func(*testing.T) (<-chan struct{}, func()) {
			noticed := make(chan struct{})
			m.change(func() { m.noticed = sync.OnceFunc(func() { close(noticed) }) })
			return noticed, func() { m.change(func() { m.noticed = nil }) }
		},
	}
}

// follower is a provider that discovers from a memory as it should.
type follower struct {
	memory *memory
	// away is called when the memory cannot be read. An error of it ends the provider.
	away func(ctx context.Context, members fleet.Members, known map[fleet.ClusterName]bool) error
	// choose returns the entry that has the name, of two.
	choose func(older, younger entry) entry
	// config returns how the cluster of an entry is reached.
	config func(e entry) *rest.Config
	// why says why a broken entry cannot be used.
	why func(e entry) error
}

func good(m *memory) follower {
	return follower{
		memory: m,
		away:   func(context.Context, fleet.Members, map[fleet.ClusterName]bool) error { return nil },
		choose: func(older, _ entry) entry { return older },
		config: func(e entry) *rest.Config { return rest.CopyConfig(e.Config) },
		why:    func(entry) error { return errors.New("the entry is broken") },
	}
}

// unreachable is a good provider of clusters of which nobody knows how they are reached.
func unreachable(m *memory) follower {
	f := good(m)
	f.config = func(entry) *rest.Config { return &rest.Config{} }
	return f
}

func (f follower) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	known := map[fleet.ClusterName]bool{}
	for ctx.Err() == nil {
		entries, news, err := f.memory.read()
		if err != nil {
			err = f.away(ctx, members, known)
		} else {
			f.report(ctx, members, known, entries)
		}
		if err != nil {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (f follower) report(ctx context.Context, members fleet.Members, known map[fleet.ClusterName]bool, entries []entry) {
	var holders []entry
	for _, e := range entries {
		if i := slices.IndexFunc(holders, func(h entry) bool { return h.Name == e.Name }); i >= 0 {
			holders[i] = f.choose(holders[i], e)
		} else {
			holders = append(holders, e)
		}
	}
	left := maps.Clone(known)
	for _, e := range holders {
		m := fleet.Member{Name: fleet.ClusterName(e.Name), Config: f.config(e), Labels: e.Labels}
		if e.broken {
			m.Config, m.Err = nil, f.why(e)
		}
		known[m.Name] = true
		delete(left, m.Name)
		if err := f.reportOne(ctx, members, m, e.leaving); err != nil {
			logf.FromContext(ctx).Error(err, "A cluster is not reported", "cluster", m.Name)
		}
	}
	for name := range left {
		delete(known, name)
		members.Remove(name)
	}
}

// reportOne reports a member. One that leaves is removed from the memory when it has left.
func (f follower) reportOne(ctx context.Context, members fleet.Members, m fleet.Member, leaves bool) error {
	if !leaves {
		return members.Set(m)
	}
	left, err := members.Leave(m)
	if err != nil {
		return err
	}
	go func() {
		select {
		case <-left:
			f.memory.change(func() {
				f.memory.entries = slices.DeleteFunc(f.memory.entries, func(e entry) bool { return e.leaving && e.Name == string(m.Name) })
			})
		case <-ctx.Done():
		}
	}()
	return nil
}
