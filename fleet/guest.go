package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/restmapper"
)

// Guest is a connection to a member for once: a client without a cache, beside the engagement of the member, if it has one.
// It is for members that need not be Ready here, and for what is to be asked of the server itself. It is safe for
// concurrent use.
type Guest struct {
	client   client.Client
	cluster  guestCluster
	identity string
	// described is the identity that the provider says.
	described string
	ctx       context.Context //nolint:containedctx // it is the life of this very object
	cancel    context.CancelCauseFunc
	config    atomic.Pointer[rest.Config]

	// Guarded by fleet.mu. news has a token when the member is described otherwise; it is nil for a guest that cannot be renewed, or not
	// yet. interrupt ends the attempt to renew it that is under way. edition is that of the description by which it is connected.
	news      chan struct{}
	interrupt context.CancelFunc
	edition   int
}

// visited is which cluster the last shared guest of a member was connected with.
type visited struct {
	identity string
	edition  int    // of the guest as it ended
	by       *Guest // nil once it has ended
}

// Client returns the client. Its reads ask the server. It has the options of members' clients, such as DryRun.
func (g *Guest) Client() client.Client { return g.client }

// Identity tells which cluster it is, as [Engagement.Identity] does. The client talks to no other.
func (g *Guest) Identity() string { return g.identity }

// IdentityNow is Identity, and asks anew where nobody would notice that another cluster answers: in a cluster that the provider
// made and does not name. The context bounds the request.
func (g *Guest) IdentityNow(ctx context.Context) (string, error) {
	if g.cluster.Cluster == nil || g.described != "" {
		return g.identity, nil
	}
	return ReadIdentity(ctx, g.client)
}

// Context ends when the client is no longer of use. Its cause says why.
func (g *Guest) Context() context.Context { return g.ctx }

// Guest connects to a member, whatever its state. The connection ends with ctx, when the member is removed, and when it is described
// otherwise. New credentials of the same cluster are taken over in place once they work, those in files within a minute; until then the
// guest has those of before. Connecting takes some requests, so a guest is worth keeping for several. It takes at most
// [Options.ConnectTimeout], and waits for no turn.
//
// The error is a [StateError] if the member is not known, or not described, or held back as drained.
func (f *Fleet) Guest(ctx context.Context, name ClusterName) (*Guest, error) {
	g := &Guest{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	m, described, err := f.admit(g, name)
	if err != nil {
		g.cancel(err)
		return nil, err
	}
	context.AfterFunc(g.ctx, func() { m.farewell(g) })
	attempt, expire := context.WithTimeout(g.ctx, f.opts.ConnectTimeout)
	defer expire()
	if err := m.openGuest(attempt, g, described); err != nil {
		if attempt.Err() != nil { // what a request ran into is a consequence
			err = context.Cause(attempt)
		}
		g.cancel(err)
		return nil, fmt.Errorf("connecting to cluster %q as a guest: %w", name, err)
	}
	return g, nil
}

// GuestIdentity returns the [Guest.Identity] of the last shared guest of a member that another replica works on, see [Fleet.SharedGuest]. It is
// known while that guest is connected, and afterwards until the member may be another cluster, as it is described otherwise, or until this replica
// works on it.
func (f *Fleet) GuestIdentity(name ClusterName) (identity string, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	if m == nil || m.visited.by == nil && m.visited.edition != m.edition {
		return "", false
	}
	return m.visited.identity, true
}

// admit notes a guest of a member, and returns how that is described.
func (f *Fleet) admit(g *Guest, name ClusterName) (*member, Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, why := f.members[name], f.notReadyLocked(name)
	switch {
	case m == nil || m.withdrawn:
		return nil, Member{}, why
	case m.described.Err != nil: // where another replica works on it, its state does not say so
		why.Status.Reason, why.Status.Message = reasonInvalid(m.described.Err), message(m.described.Err)
		return nil, Member{}, why
	case m.isHeldDrainedLocked():
		why.Status.Reason, why.Status.Message = ReasonDrained, m.hold.message()
		return nil, Member{}, why
	}
	if m.guests == nil {
		m.guests = map[*Guest]struct{}{}
	}
	m.guests[g] = struct{}{}
	g.edition = m.edition
	return m, m.described, nil
}

// farewell forgets a guest, but not with which cluster it was connected, unless it has ended as that may be another one now.
func (m *member) farewell(g *Guest) {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	delete(m.guests, g)
	if m.visited.by != g {
		return
	}
	m.visited.edition, m.visited.by = g.edition, nil
	if why := context.Cause(g.ctx); errors.Is(why, errReplaced) || errors.Is(why, ErrAnotherCluster) {
		m.visited = visited{}
	}
}

// dismissLocked ends the guests.
func (m *member) dismissLocked(why error) {
	m.fleet.retryGuestLocked(m.name)
	for g := range m.guests {
		g.cancel(fmt.Errorf("%w: %w", ErrDisengaged, why))
	}
}

// openGuest makes the client of a guest, on a wire of its own. A cluster that the provider made brings its own.
func (m *member) openGuest(attempt context.Context, g *Guest, described Member) (err error) {
	g.identity, g.described = described.Identity, described.Identity
	if made := described.Cluster; made != nil {
		g.config.Store(made.GetConfig())
		g.client = uncached{gatedClient{made.GetClient(), nil}, made.GetAPIReader()}
		g.cluster = guestCluster{made, g.client, &g.config, made.GetHTTPClient()}
		if g.identity == "" {
			g.identity, err = ReadIdentity(attempt, g.client)
		}
		return err
	}
	if described, err = described.Loaded(); err != nil {
		return err
	}
	cfg, err := m.usable(described)
	if err != nil {
		return err
	}
	w, err := m.newGuestWire(g, cfg, described)
	if err != nil {
		return err
	}
	if err := w.probe(attempt); err != nil {
		return err
	}
	if described.Identity == "" {
		if g.identity, err = w.settle(attempt); err != nil {
			return err
		}
	}
	httpClient := &http.Client{Transport: m.transport(w), Timeout: cfg.Timeout}
	mapper, err := restmapper.New(g.ctx, cfg, httpClient, &m.fleet.groups)
	if err != nil {
		return err
	}
	g.config.Store(cfg)
	g.client, err = m.newGuestClient(described, cfg, httpClient, mapper)
	g.cluster = guestCluster{nil, g.client, &g.config, httpClient}
	if err == nil {
		m.keepGuest(g, w, described)
	}
	return err
}

// newGuestWire returns the wire of a guest, which is closed with it. Nobody probes it.
func (m *member) newGuestWire(g *Guest, cfg *rest.Config, described Member) (*wire, error) {
	first, err := newGeneration(cfg, &m.plugin)
	if err != nil {
		return nil, err
	}
	w := m.newWire(cfg, described, nil)
	w.unreachable = nil
	w.health = newHealth(m.fleet.opts.Health, w, func(_ State, why error) {
		if errors.Is(why, ErrAnotherCluster) { // it would never answer again
			g.cancel(fmt.Errorf("%w: %w", ErrDisengaged, why))
		}
	}, func() {})
	w.current.Store(first)
	ended := m.fleet.clientSeries.Begin(cfg)
	context.AfterFunc(g.ctx, func() {
		w.close()
		ended()
	})
	return w, nil
}

// newGuestClient returns a client without a cache that has the options of members' clients.
func (m *member) newGuestClient(described Member, cfg *rest.Config, httpClient *http.Client, mapper meta.RESTMapper) (client.Client, error) {
	o := cluster.Options{Scheme: m.fleet.opts.Scheme}
	for _, apply := range m.fleet.opts.ClusterOptions(described) {
		apply(&o)
	}
	if o.NewClient == nil {
		o.NewClient = client.New
	}
	options := o.Client
	options.HTTPClient, options.Mapper, options.Scheme, options.Cache = httpClient, mapper, o.Scheme, nil
	return o.NewClient(cfg, options)
}
