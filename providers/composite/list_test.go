package composite_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/composite"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

// list is a provider of what is described in it.
type list struct {
	mu      sync.Mutex // guards what follows
	news    chan struct{}
	members map[fleet.ClusterName]fleet.Member
}

func newList() *list {
	return &list{news: make(chan struct{}), members: map[fleet.ClusterName]fleet.Member{}}
}

func (l *list) change(change func(members map[fleet.ClusterName]fleet.Member)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.members)
	close(l.news)
	l.news = make(chan struct{})
}

func (l *list) set(m fleet.Member) {
	l.change(func(members map[fleet.ClusterName]fleet.Member) { members[m.Name] = m })
}

func (l *list) remove(name fleet.ClusterName) {
	l.change(func(members map[fleet.ClusterName]fleet.Member) { delete(members, name) })
}

func (l *list) read() (map[fleet.ClusterName]fleet.Member, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.members), l.news
}

// Run implements [fleet.Provider].
func (l *list) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	known := map[fleet.ClusterName]fleet.Member{}
	for ctx.Err() == nil {
		now, news := l.read()
		for name := range known {
			if _, ok := now[name]; !ok {
				members.Remove(name)
			}
		}
		for name, m := range now {
			if err := members.Set(m); err != nil {
				logf.FromContext(ctx).Error(err, "Not reported", "cluster", name)
			}
		}
		known = now
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	for prefix, name := range map[string]func(string) fleet.ClusterName{
		"":    func(name string) fleet.ClusterName { return fleet.ClusterName(name) },
		"aws": func(name string) fleet.ClusterName { return fleet.ClusterName("aws#" + name) },
	} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			providertest.Run(t, providertest.Harness{
				Name: name,
				New:  func(*testing.T) providertest.Source { return source(prefix, newList()) },
			})
		})
	}
}

// source returns the list as what a composite of two discovers from. The other of the two always fails.
func source(prefix string, l *list) providertest.Source {
	return providertest.Source{
		Provider: func() fleet.Provider { return composite.Provider{prefix: l, "broken": broken{}} },
		Set: func(_ *testing.T, d providertest.Description) {
			l.set(fleet.Member{Name: fleet.ClusterName(d.Name), Config: d.Config, Labels: d.Labels})
		},
		Remove: func(_ *testing.T, name string) { l.remove(fleet.ClusterName(name)) },
		Rename: func(_ *testing.T, from, to string) {
			l.change(func(members map[fleet.ClusterName]fleet.Member) {
				m := members[fleet.ClusterName(from)]
				delete(members, m.Name)
				m.Name = fleet.ClusterName(to)
				members[m.Name] = m
			})
		},
		Break: func(_ *testing.T, d providertest.Description) {
			l.set(fleet.Member{Name: fleet.ClusterName(d.Name), Err: errors.New("it is broken")})
		},
	}
}

// broken is a provider that fails.
type broken struct{}

func (broken) Run(context.Context, cluster.Cluster, fleet.Members) error {
	return errors.New("it does not work")
}

// at returns a member whose cluster is at the host.
func at(name fleet.ClusterName, host string) fleet.Member {
	return fleet.Member{Name: name, Config: &rest.Config{Host: host}}
}
