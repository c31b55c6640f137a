package fleet

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// rotationGrace is how long requests may take that are under way with the old credentials.
const rotationGrace = 30 * time.Second

// rotatable returns the engagement that only needs other credentials to be what is described, or nil.
func (m *member) rotatable(described Member) *Engagement {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	e := m.engagement
	if e == nil || e.ctx.Err() != nil || e.wire == nil || described.Config == nil ||
		!sameServer(m.engagedAs.Config, described.Config) {
		return nil
	}
	return e
}

// rotate gives an engagement new credentials, once they have proved to work. Its caches and watches go on; if the new
// credentials do not work, so do the old ones, and the status says so.
func (m *member) rotate(ctx context.Context, described Member, e *Engagement) error {
	attempt, interrupt := context.WithTimeout(ctx, m.fleet.opts.ConnectTimeout)
	defer interrupt()
	if !m.begin(described, interrupt) {
		return errOutdated
	}
	cfg := m.fleet.usable(described)
	next, err := newGeneration(cfg)
	if err != nil {
		return m.failed(described, err)
	}
	if err := prober(cfg, &http.Client{Transport: next})(attempt); err != nil {
		closed, cancel := context.WithCancel(ctx)
		cancel()
		next.retire(closed)
		return m.failed(described, err)
	}
	m.rotated(described, e, cfg, next)
	return nil
}

// rotated puts the new credentials in the place of the old ones.
func (m *member) rotated(described Member, e *Engagement, cfg *rest.Config, next *generation) {
	m.fleet.mu.Lock()
	m.interrupt = func() {}
	m.engagedAs = described
	m.attempts, m.problem = 0, problem{}
	m.rotations++
	m.fleet.changedLocked(m.name)
	m.fleet.mu.Unlock()

	if c, ok := e.cluster.(*rotatingCluster); ok {
		c.config.Store(cfg)
	}
	before := e.wire.current.Swap(next)
	e.background.Go(func() {
		grace, cancel := context.WithTimeout(e.ctx, rotationGrace)
		defer cancel()
		before.retire(grace) // its watches go on with the next one, from where they were
	})
	m.log.Info("Took over new credentials")
}

// rotatingCluster is a member's cluster, whose config has the credentials of now.
type rotatingCluster struct {
	cluster.Cluster
	config atomic.Pointer[rest.Config]
}

func newRotatingCluster(c cluster.Cluster, cfg *rest.Config) *rotatingCluster {
	r := &rotatingCluster{Cluster: c}
	r.config.Store(cfg)
	return r
}

// GetConfig implements cluster.Cluster. Clients that are made of it have the credentials of that moment: those that
// [Engagement.Cluster] returns have the latest at any time.
func (r *rotatingCluster) GetConfig() *rest.Config { return r.config.Load() }
