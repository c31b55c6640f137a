package dependents

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// memory is what a controller knows that is not written anywhere. All of it is found out again after a restart.
type memory struct {
	mu       sync.Mutex // guards what follows
	owners   map[mcreconcile.Request]*ownerMemory
	awaiting map[obstacle]map[mcreconcile.Request]struct{}
	missing  map[site]time.Time
	leads    map[mcreconcile.ClusterName]types.UID // which cluster has a name, as the members' source has seen last
}

// obstacle is what an owner waits for: a cluster, or, with a kind and a name, that an object there is gone.
type obstacle = dependentKey

func newMemory() *memory {
	return &memory{
		owners:   map[mcreconcile.Request]*ownerMemory{},
		awaiting: map[obstacle]map[mcreconcile.Request]struct{}{},
		missing:  map[site]time.Time{},
		leads:    map[mcreconcile.ClusterName]types.UID{},
	}
}

// of returns what is known of an owner.
func (m *memory) of(req mcreconcile.Request) *ownerMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.owners[req]
	if !ok {
		o = &ownerMemory{applied: map[mcreconcile.ClusterName]map[dependentKey]applied{}, told: map[string]string{}}
		m.owners[req] = o
	}
	return o
}

// forget drops an owner that is gone.
func (m *memory) forget(req mcreconcile.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked(req)
}

func (m *memory) forgetLocked(req mcreconcile.Request) {
	delete(m.owners, req)
	for o := range m.awaiting {
		m.settledLocked(req, o)
	}
}

// forgetOrigin drops the owners of a name that is no member's any more, and which cluster had it.
func (m *memory) forgetOrigin(name mcreconcile.ClusterName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for req := range m.owners {
		if req.ClusterName == name {
			m.forgetLocked(req)
		}
	}
	delete(m.leads, name)
}

// await notes that an owner is to be reconciled when something changes about an obstacle.
func (m *memory) await(req mcreconcile.Request, o obstacle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.awaiting[o] == nil {
		m.awaiting[o] = map[mcreconcile.Request]struct{}{}
	}
	m.awaiting[o][req] = struct{}{}
}

// settled notes that an obstacle is none any more.
func (m *memory) settled(req mcreconcile.Request, o obstacle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settledLocked(req, o)
}

func (m *memory) settledLocked(req mcreconcile.Request, o obstacle) {
	delete(m.awaiting[o], req)
	if len(m.awaiting[o]) == 0 {
		delete(m.awaiting, o)
	}
}

// waitingFor returns the owners that wait for an obstacle.
func (m *memory) waitingFor(o obstacle) []mcreconcile.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return keys(m.awaiting[o])
}

// all returns all owners.
func (m *memory) all() []mcreconcile.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return keys(m.owners)
}

func keys[K comparable, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// missingFor returns for how long a cluster has been missed that is not in the fleet, from now on if it was not before.
// One that is back is not missed, whatever a reconcile says that began before.
func (m *memory) missingFor(cluster site) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cluster.identity != "" && cluster.identity == m.leads[cluster.name] {
		return 0
	}
	since, ok := m.missing[cluster]
	if !ok {
		since = time.Now()
		m.missing[cluster] = since
	}
	return time.Since(since)
}

// present notes that a cluster is in the fleet.
func (m *memory) present(cluster site) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.missing, cluster)
	delete(m.missing, site{name: cluster.name})
	if cluster.identity != "" {
		m.leads[cluster.name] = cluster.identity
	}
}

// ownerMemory is what is known of one owner.
type ownerMemory struct {
	mu      sync.Mutex // guards what follows: the clusters of an owner are worked on side by side
	applied map[mcreconcile.ClusterName]map[dependentKey]applied
	told    map[string]string // the last event, by what it is about
}

type dependentKey struct {
	cluster mcreconcile.ClusterName
	kind    schema.GroupKind
	name    types.NamespacedName
}

// applied is what was applied last, and what came of it, as hashes. While both are as they were, there is nothing to apply.
type applied struct {
	uid              types.UID
	desired, content hash
}

type hash [sha256.Size]byte

func (o *ownerMemory) is(key dependentKey, a applied) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, ok := o.applied[key.cluster][key]
	return ok && before == a
}

func (o *ownerMemory) remember(key dependentKey, a applied) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.applied[key.cluster] == nil {
		o.applied[key.cluster] = map[dependentKey]applied{}
	}
	o.applied[key.cluster][key] = a
}

func (o *ownerMemory) forget(key dependentKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.applied[key.cluster], key)
}

// keep drops what was applied in a cluster and is not wanted any more: it may have gone by itself.
func (o *ownerMemory) keep(name mcreconcile.ClusterName, wanted map[dependentKey]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.applied[name], func(key dependentKey, _ applied) bool { return !wanted[key] })
}

// forgetCluster drops what was applied in a cluster.
func (o *ownerMemory) forgetCluster(name mcreconcile.ClusterName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.applied, name)
}

// isNews reports whether something was not said last about the same thing. An empty message says that all is well.
func (o *ownerMemory) isNews(about, message string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[about] == message {
		return false
	}
	if message == "" {
		delete(o.told, about)
	} else {
		o.told[about] = message
	}
	return true
}
