// Package kind is the provider of the kind clusters of this machine: Kubernetes in containers, for development and tests
// (https://kind.sigs.k8s.io).
//
// It asks kind's library, which runs the program of a container engine: docker, nerdctl (or finch) or podman.
package kind

import (
	"context"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// DefaultInterval is how often kind is asked for its clusters.
const DefaultInterval = 5 * time.Second

// Reasons of members that cannot be described.
const (
	// ReasonNoEngine says that there is no container engine, or that it does not answer.
	ReasonNoEngine = "NoEngine"
	// ReasonNoCluster says that there is no kind cluster of a name that was asked for.
	ReasonNoCluster = "NoCluster"
	// ReasonNoKubeconfig says that a cluster has no kubeconfig as yet, or that it cannot be had because its nodes do not
	// run.
	ReasonNoKubeconfig = "NoKubeconfig"
)

// Provider is a [fleet.Provider] of the kind clusters of this machine. The zero value reports all of them. A provider must not
// be changed after Run was called.
type Provider struct {
	// Clusters are the names of the clusters that become members, as kind has them ("kind" is the one of a plain
	// "kind create cluster"), or patterns of names as in [path.Match]. A name that no cluster has becomes a member all the
	// same, one that says so.
	// Default: all.
	Clusters []string

	// Name returns the name of the member. It must give each cluster a different one.
	// Default: the name of the cluster.
	Name func(cluster string) fleet.ClusterName

	// Labels returns the labels of the member.
	// Default: none.
	Labels func(cluster string) map[string]string

	// Internal makes members reachable by the names of their nodes, instead of the ports on this machine that lead to
	// them. A manager that runs in a container of kind's network needs that.
	Internal bool

	// Interval is how often kind is asked for its clusters. It tells of no changes by itself. The kubeconfig of a cluster
	// that is known is asked for every twelfth time.
	// Default: [DefaultInterval].
	Interval time.Duration
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. It needs no local cluster. It returns an error only if a pattern cannot be parsed. While
// there is no engine, or kind fails, the members stay and say so, and kind is asked again.
//
// The library cannot be interrupted. If an engine does not answer at the end, Run returns all the same after a few
// seconds, and what waits for the answer ends with it.
func (p Provider) Run(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
	for _, pattern := range p.Clusters {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("providers/kind: the pattern %q in Provider.Clusters: %w", pattern, err)
		}
	}
	if p.Interval <= 0 {
		p.Interval = DefaultInterval
	}
	newFollower(p, detect, members).run(ctx)
	return nil
}

// takes reports whether the cluster of this name becomes a member.
func (p Provider) takes(name string) bool {
	for _, pattern := range p.Clusters {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return len(p.Clusters) == 0
}

// named returns the names in Clusters that are no patterns.
func (p Provider) named() (names []string) {
	for _, name := range p.Clusters {
		if !strings.ContainsAny(name, `*?[\`) {
			names = append(names, name)
		}
	}
	return names
}

// member gives a member its name and labels.
func (p Provider) member(cluster string, m fleet.Member) fleet.Member {
	m.Name = fleet.ClusterName(cluster)
	if p.Name != nil {
		m.Name = p.Name(cluster)
	}
	if p.Labels != nil {
		m.Labels = maps.Clone(p.Labels(cluster))
	}
	return m
}
