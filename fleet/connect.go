package fleet

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/internal/redirect"
)

// open connects an engagement as described: it asks the API server whether it is ready and which cluster it is, and starts
// a cache. before is the engagement whose place it takes, if there is one.
func (m *member) open(attempt context.Context, e *Engagement, described Member, before *Engagement) (err error) {
	e.identity = described.Identity
	if described.Name == localName {
		e.cluster = described.Cluster // the manager itself, which is no member
		return nil
	}
	if described.Cluster != nil {
		return m.openExisting(attempt, e, described.Cluster)
	}
	cfg, err := m.usable(described)
	if err != nil {
		return err
	}
	first, err := newGeneration(cfg, &m.plugin)
	if err != nil {
		return err
	}
	e.drained = m.fleet.clientSeries.Begin(cfg)
	e.wire = m.newWire(cfg, described, before)
	e.wire.gate = e.gate
	e.wire.current.Store(first)
	defer func() {
		if err != nil {
			e.wire.close()
		}
	}()
	e.wire.health = m.newHealth(e)
	if err := e.wire.probe(attempt); err != nil {
		return err
	}
	if described.Identity == "" {
		if e.identity, err = e.wire.settle(attempt); err != nil {
			return err
		}
	}
	e.inherit(before)
	if e.cluster, err = m.newCluster(cfg, e, described); err != nil {
		return err
	}
	m.serve(e)
	if !e.cluster.GetCache().WaitForCacheSync(attempt) {
		return fmt.Errorf("starting the cache: %w", context.Cause(attempt))
	}
	return nil
}

// openExisting makes an engagement of a cluster that the provider made.
func (m *member) openExisting(attempt context.Context, e *Engagement, made cluster.Cluster) error {
	e.cluster = gatedCluster(made, e.gate)
	e.identifyCluster(attempt)
	e.ownIndexes()
	if err := e.addIndexes(attempt); err != nil {
		return err
	}
	if e.asked != nil {
		e.background.Go(func() { m.followIdentity(e) })
	}
	return nil
}

// newHealth returns what watches over an engagement.
func (m *member) newHealth(e *Engagement) *health {
	h := newHealth(m.fleet.opts.Health, e.wire, func(state State, err error) { m.health(e, state, err) }, func() { m.tell(m.denied) })
	h.pause = m.fleet.outage.pause
	return h
}

// newWire returns the wire for one engagement, which is to take the place of the one before. It has no generation and no
// health yet.
func (m *member) newWire(cfg *rest.Config, described Member, before *Engagement) *wire {
	w := &wire{
		name: described.Name, unreachable: m.unreachable,
		most: m.fleet.opts.MaxResponseBytes, ready: m.measured.tally.timed(prober(cfg)),
	}
	if described.Identity == "" {
		w.identify = identifier(cfg)
	}
	if before != nil {
		w.before = before.identity
	}
	return w
}

// identifyCluster reads the identity of a cluster that the provider made, unless the provider says it. Where it cannot be
// read, it is unknown: whether such a cluster can be reached is the provider's business.
func (e *Engagement) identifyCluster(attempt context.Context) {
	if e.identity != "" {
		return
	}
	if e.asked = e.cluster.GetAPIReader(); e.asked != nil {
		e.identity, _ = ReadIdentity(attempt, e.asked)
	}
}

// serve runs what the engagement needs, on its context, until it ends.
func (m *member) serve(e *Engagement) {
	probed := e.wire.health.watch(e.ctx)
	e.background.Go(func() {
		defer e.wire.close()
		defer func() {
			<-e.ctx.Done()
			probed()
		}()
		if err := e.cluster.Start(e.ctx); err != nil && e.ctx.Err() == nil {
			m.logger().Error(err, "The member's cache has stopped")
			e.wire.health.report(Unreachable, err)
			e.end(err)
			m.tell(m.news)
		}
	})
	if e.identity == "" && e.wire.identify != nil {
		e.background.Go(func() { m.learnIdentity(e) })
	}
}

// usable returns a copy of the described config as the fleet uses it.
func (m *member) usable(described Member) (*rest.Config, error) {
	cfg := rest.CopyConfig(described.Config)
	if err := m.fleet.opts.RESTConfig(described, cfg); err != nil {
		return nil, fmt.Errorf("preparing the config by fleet.Options.RESTConfig: %w", err)
	}
	if cfg.QPS == 0 {
		cfg.QPS = -1 // client-go's default of five requests a second would make a fleet crawl
	}
	if cfg.WarningHandler == nil && cfg.WarningHandlerWithContext == nil {
		cfg.WarningHandlerWithContext = m.warnings
	}
	cfg.Wrap(redirect.Refuse)
	paths.Confine(cfg, fmt.Sprintf("cluster %q", described.Name))
	return cfg, nil
}
