package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// watch returns the options of a watch in these clusters.
func (c Clusters) watch() []mcbuilder.WatchOption {
	var opts []mcbuilder.WatchOption
	if c.Local {
		opts = append(opts, mcbuilder.InLocalCluster)
	}
	if c.hasMembers() {
		opts = append(opts, mcbuilder.InMembers(c.Members))
	}
	return opts
}

func (c Clusters) hasMembers() bool { return !c.Local || c.Members != nil }

// access reaches the clusters of a manager, in the name of a controller.
type access struct {
	mgr     mcmanager.Manager
	who     string        // what works on them
	timeout time.Duration // of each request
	known   *Identities
}

// session is a cluster while it is worked on.
type session struct {
	name       mcreconcile.ClusterName
	cluster    cluster.Cluster
	engagement *fleet.Engagement // nil for the local cluster
	identity   types.UID         // emptyCluster if it is not known
}

// references returns the owners of an object of the cluster, see mcowner.References. An object whose reference was written in
// another cluster of the name is a copy, such as one from a backup, and has none.
func (at session) references(obj client.Object) ([]mcowner.Reference, error) {
	references, err := mcowner.References(obj, at.name)
	return slices.DeleteFunc(references, func(r mcowner.Reference) bool {
		return mcowner.Differ(r.Dependent.ClusterUID, at.identity)
	}), err
}

// names returns which clusters there are, in whatever state.
func (p *access) names(in Clusters) []mcreconcile.ClusterName {
	var names []mcreconcile.ClusterName
	fleetless := p.mgr.GetProvider() == nil
	if in.Local || fleetless {
		names = append(names, mcreconcile.LocalCluster)
	}
	if in.hasMembers() && !fleetless {
		for _, member := range p.mgr.GetFleet().List(in.Members) {
			names = append(names, member.Name)
		}
	}
	return names
}

// within reports whether a cluster is one of these.
func (p *access) within(in Clusters, name mcreconcile.ClusterName) bool {
	fleetless := p.mgr.GetProvider() == nil
	if name == mcreconcile.LocalCluster {
		return in.Local || fleetless
	}
	return in.hasMembers() && !fleetless && (in.Members == nil || in.Members.Matches(p.labelsOf(name)))
}

// labelsOf returns the labels of a member.
func (p *access) labelsOf(name mcreconcile.ClusterName) labels.Set {
	status, _ := p.mgr.GetFleet().Status(name)
	return status.Labels
}

// clustersAtOnce is how many clusters are worked on side by side, for one owner or one sweep.
const clustersAtOnce = 16

// sideBySide calls do for several clusters, so that none holds up the others, and returns when all is done.
func sideBySide(names []mcreconcile.ClusterName, do func(i int, name mcreconcile.ClusterName)) {
	var group errgroup.Group
	group.SetLimit(clustersAtOnce)
	for i, name := range names {
		group.Go(func() error {
			do(i, name)
			return nil
		})
	}
	_ = group.Wait() // it has no errors
}

// enter returns a cluster that can be used now, and a context that ends with its engagement, which is not drained before
// leave was called. The error is a fleet.StateError, or wraps fleet.ErrDisengaged.
func (p *access) enter(ctx context.Context, name mcreconcile.ClusterName) (_ context.Context, _ session, leave func(), err error) {
	if name == mcreconcile.LocalCluster {
		identity, err := p.identityNow(ctx, name)
		return ctx, session{name: name, cluster: p.mgr, identity: identity}, func() {}, err
	}
	engagement, err := p.mgr.GetFleet().Engagement(name)
	if err != nil {
		return nil, session{}, nil, err
	}
	ctx, leave, err = engagement.Join(ctx, work(p.who))
	if err != nil {
		return nil, session{}, nil, err
	}
	at := session{name: name, cluster: engagement.Cluster(), engagement: engagement, identity: uidOf(engagement.Identity())}
	return ctx, at, leave, nil
}

// identityNow returns which cluster has a name now. The error says why it cannot be used.
func (p *access) identityNow(ctx context.Context, name mcreconcile.ClusterName) (types.UID, error) {
	if name == mcreconcile.LocalCluster {
		ctx, cancel := p.bound(ctx)
		defer cancel()
		return p.known.ofLocal(ctx)
	}
	engagement, err := p.mgr.GetFleet().Engagement(name)
	if err != nil {
		return "", err
	}
	return uidOf(engagement.Identity()), nil
}

// work says what keeps an engagement from being drained.
type work string

func (w work) String() string { return "work of controller " + string(w) + " on dependents" }

// visit calls do with a cluster that can be used now. The error says so if that ended meanwhile.
func (p *access) visit(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, session) error) error {
	inside, at, leave, err := p.enter(ctx, name)
	if err != nil {
		return err
	}
	defer leave()
	if err := do(inside, at); err != nil {
		if cause := context.Cause(inside); errors.Is(cause, fleet.ErrDisengaged) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	return nil
}

// isAway reports whether an error says that a cluster cannot be used now. It is no fault of what was tried there.
func isAway(err error) bool {
	_, state := errors.AsType[*fleet.StateError](err)
	return state || errors.Is(err, fleet.ErrDisengaged) || errors.Is(err, fleet.ErrNotReady)
}

// bound bounds one request.
func (p *access) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s: %w", p.timeout, context.DeadlineExceeded))
}

// perEngagement has a value for each engagement of a member, and one for the local cluster, until it ends. The zero value
// is empty.
type perEngagement[V any] struct {
	mu     sync.Mutex // guards values; nothing is made while it is held
	values map[*fleet.Engagement]V
}

// get returns the value of an engagement, and makes it if there is none. It may be made twice, and is then kept once.
func (p *perEngagement[V]) get(e *fleet.Engagement, newValue func() (V, error)) (V, error) {
	p.mu.Lock()
	value, ok := p.values[e]
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
	if value, ok = p.values[e]; ok {
		return value, nil
	}
	if p.values == nil {
		p.values = map[*fleet.Engagement]V{}
	}
	p.values[e] = made
	if e != nil {
		context.AfterFunc(e.Context(), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.values, e)
		})
	}
	return made, nil
}
