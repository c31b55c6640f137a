package fleet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/eventlog"
)

// rotationGrace is how long requests may take that are under way with the old credentials.
const rotationGrace = 30 * time.Second

// rotatable returns the engagement that may only need other credentials to be what is described, or nil.
func (m *member) rotatable(described Member) *Engagement {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	e := m.engagement
	if e == nil || e.ctx.Err() != nil || e.wire == nil || m.impostor || described.Config == nil ||
		!sameAddress(m.engagedAs.Config, described.Config) {
		return nil
	}
	return e
}

// errNotInPlace says that a description needs an engagement of its own.
var errNotInPlace = errors.New("it may be another cluster")

// rotate gives an engagement new credentials, once they have proved to work, and to lead to the same cluster. Its caches
// and watches go on; if the new credentials do not work, so do the old ones, and the status says so. Credentials that lead
// elsewhere, or may do so, are errNotInPlace.
func (m *member) rotate(ctx context.Context, described Member, e *Engagement) (err error) {
	attempt, interrupt := context.WithTimeout(ctx, m.fleet.opts.ConnectTimeout)
	defer interrupt()
	if !m.begin(described, interrupt) {
		return errOutdated
	}
	observed := m.observe(StepRotate, nil)
	defer func() { observed(err) }()
	cfg, next, err := m.prove(attempt, m.engagedAs, described, e.identity)
	if errors.Is(err, errNotInPlace) {
		m.notInPlace()
		return err
	}
	if err != nil {
		return m.failed(described, err)
	}
	m.rotated(described, e, cfg, next)
	return nil
}

// prove returns what a description has in place of the credentials in before, once it has proved to work, and to lead to the same cluster.
func (m *member) prove(ctx context.Context, before *Member, described Member, identity string) (*rest.Config, *generation, error) {
	cfg, err := m.usable(described)
	if err != nil {
		return nil, nil, err
	}
	next, err := newGeneration(cfg, &m.plugin)
	if err != nil {
		return nil, nil, err
	}
	now, err := identityOver(ctx, next, cfg, described)
	if now, err = orUnknown(identity, now, err); err == nil && (now != identity || now == "" && !sameRoute(before.Config, described.Config)) {
		err = errNotInPlace
	}
	if err != nil {
		next.finish()
		return nil, nil, err
	}
	return cfg, next, nil
}

// identityOver asks whether a server is ready, and which cluster it is.
func identityOver(ctx context.Context, g *generation, cfg *rest.Config, described Member) (string, error) {
	if err := prober(cfg)(ctx, g); err != nil {
		return "", err
	}
	if described.Identity != "" {
		return described.Identity, nil
	}
	return identifier(cfg)(ctx, g)
}

// notInPlace takes back that an attempt was begun: the one that follows is the same.
func (m *member) notInPlace() {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.interrupt = func() {}
	m.attempts--
}

// rotated puts the new credentials in the place of the old ones.
func (m *member) rotated(described Member, e *Engagement, cfg *rest.Config, next *generation) {
	before := e.wire.replace(next)
	if before == nil { // the engagement has ended meanwhile
		next.finish()
		return
	}
	if c, ok := e.cluster.(*rotatingCluster); ok {
		c.config.Store(cfg)
	}
	m.fleet.mu.Lock()
	m.interrupt = func() {}
	m.engagedAs = &described
	m.attempts, m.problem = 0, problem{}
	m.rotations++
	m.fleet.changedLocked(m.name)
	m.fleet.mu.Unlock()

	m.logger().Info("Took over new credentials")
	e.wire.health.askNow()
	e.retire(before)
}

// retire ends the use of old credentials. Watches go on with the new ones, from where they were.
func (e *Engagement) retire(before *generation) {
	life, leave, err := e.Join(e.ctx, retiring{})
	if err != nil {
		before.finish()
		return
	}
	e.background.Go(func() {
		defer leave()
		before.retire(life)
	})
}

// retiring names what runs while old credentials are given up.
type retiring struct{}

func (retiring) String() string { return "the last request with the old credentials" }

// rotatingCluster is a member's cluster, whose config has the credentials of now.
type rotatingCluster struct {
	cluster.Cluster
	config    atomic.Pointer[rest.Config]
	recorders *eventlog.Recorders // of the old API, nil if they are those of Cluster
}

func newRotatingCluster(c cluster.Cluster, cfg *rest.Config) *rotatingCluster {
	r := &rotatingCluster{Cluster: c}
	r.config.Store(cfg)
	return r
}

// GetConfig implements cluster.Cluster. Clients that are made of it have the credentials of that moment: those that
// [Engagement.Cluster] returns have the latest at any time.
func (r *rotatingCluster) GetConfig() *rest.Config { return r.config.Load() }

// GetEventRecorderFor implements recorder.Provider.
func (r *rotatingCluster) GetEventRecorderFor(name string) record.EventRecorder {
	if r.recorders == nil {
		return r.Cluster.GetEventRecorderFor(name) //nolint:staticcheck // cluster.Cluster has it still
	}
	return r.recorders.For(name)
}
