package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Session is a cluster while it is worked on.
type Session struct {
	ID         mcowner.ClusterID
	Cluster    cluster.Cluster
	Engagement *fleet.Engagement // nil for the local cluster, and for a guest
	Guest      *fleet.Guest      // nil unless another replica works on the member
}

// Name returns what the cluster is called.
func (at Session) Name() mcreconcile.ClusterName { return at.ID.Name }

// IsMember reports whether it is another cluster than the local one.
func (at Session) IsMember() bool { return at.Engagement != nil || at.Guest != nil }

func (at Session) String() string { return ClusterText(at.ID.Name) }

// Locate says where an object of the cluster is, and of which kind if it says that.
func (at Session) Locate(obj client.Object) mcowner.Location {
	said := obj.GetObjectKind().GroupVersionKind()
	return mcowner.Location{
		Cluster: at.ID.Name, ClusterUID: at.ID.UID, Group: said.Group, Kind: said.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
	}
}

// Has reports whether an object of a kind in the cluster has a reference to the owner, or to one that the owner succeeds.
func (at Session) Has(k Kind, obj client.Object, owner mcowner.Reference) bool {
	references, err := k.References(obj, at.ID)
	return err == nil && slices.ContainsFunc(references, owner.Succeeds)
}

// ClusterText names a cluster, for messages.
func ClusterText(name mcreconcile.ClusterName) string {
	if name == mcreconcile.LocalCluster {
		return "the local cluster"
	}
	return fmt.Sprintf("cluster %q", name)
}

// Life returns what ends when another cluster may answer by the name. It tells sessions apart, and is never nil.
func (at Session) Life() any {
	if at.Guest != nil {
		return at.Guest
	}
	return at.Engagement
}

// onEnd calls done when another cluster may answer by the name. The local cluster is always the same.
func (at Session) onEnd(done func()) {
	switch {
	case at.Guest != nil:
		context.AfterFunc(at.Guest.Context(), done)
	case at.Engagement != nil:
		context.AfterFunc(at.Engagement.Context(), done)
	}
}

// PerEngagement has a value for each engagement of a member, each guest, and one for the local cluster, until it ends. The zero value
// is empty. It is safe for concurrent use.
type PerEngagement[V any] struct {
	mu     sync.Mutex // guards values; nothing is made while it is held
	values map[any]V  // by the lives of sessions
}

// Get returns the value of a session's engagement, and makes it if there is none. It may be made twice, and is then kept once.
func (p *PerEngagement[V]) Get(at Session, newValue func() (V, error)) (V, error) {
	life := at.Life()
	p.mu.Lock()
	value, ok := p.values[life]
	p.mu.Unlock()
	if ok {
		return value, nil
	}
	made, err := newValue()
	if err != nil {
		return made, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if value, ok = p.values[life]; ok {
		return value, nil
	}
	if p.values == nil {
		p.values = map[any]V{}
	}
	p.values[life] = made
	at.onEnd(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.values, life)
	})
	return made, nil
}
