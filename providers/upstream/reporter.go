package upstream

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// reporter reports to a fleet which clusters a provider of multicluster-runtime has engaged.
type reporter struct {
	ctx      context.Context //nolint:containedctx // the life of the provider
	members  fleet.Members
	provider Provider // for what it says of clusters
	indexes  indexes

	mu      sync.Mutex // guards what follows; nothing is reported under it
	slots   map[fleet.ClusterName]*slot
	closed  bool
	running sync.WaitGroup // the goroutines of the slots; none is added once closed is set
}

var _ multicluster.Aware = (*reporter)(nil)

// slot is a name, and what has it. It is forgotten when nothing has it.
type slot struct {
	name     fleet.ClusterName
	engaged  *engagement // with the provider, nil for none
	reported *engagement // to the fleet, nil for none
	busy     bool        // a goroutine reports
}

// engagement is a cluster that is engaged, from Engage to the end of the context that Engage was given.
type engagement struct {
	cluster cluster.Cluster // as the provider gave it
	member  fleet.Member
	ctx     context.Context //nolint:containedctx // the life of this very object
	release func()
}

func newReporter(ctx context.Context, members fleet.Members, provider Provider) *reporter {
	return &reporter{ctx: ctx, members: members, provider: provider, slots: map[fleet.ClusterName]*slot{}}
}

// Engage implements multicluster.Aware. It returns an error that wraps fleet.ErrInvalidMember for a name that cannot be
// used.
func (r *reporter) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	member := fleet.Member{Name: fleet.ClusterName(name), Cluster: cl}
	if err := member.Validate(); err != nil {
		return err
	}
	if r.provider.Labels != nil {
		member.Labels = r.provider.Labels(member.Name, cl)
	}
	if r.provider.Identity != nil {
		member.Identity = r.provider.Identity(member.Name, cl)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil || r.closed {
		return errors.Join(errEnded, context.Cause(ctx))
	}
	s := r.slots[member.Name]
	if s == nil {
		s = &slot{name: member.Name}
		r.slots[s.name] = s
	}
	before := s.engaged
	if before != nil && before.cluster == cl && before.ctx.Err() == nil {
		return nil
	}
	s.engaged = r.engagement(ctx, s, member)
	if before != nil {
		before.release()
	}
	r.settleLocked(s)
	return nil
}

var errEnded = errors.New("the provider or the cluster has ended already")

// engagement returns the engagement of a cluster, which ends with ctx.
func (r *reporter) engagement(ctx context.Context, s *slot, member fleet.Member) *engagement {
	e := &engagement{cluster: member.Cluster, member: member, ctx: ctx}
	cl, unshare := r.indexes.share(member.Cluster)
	e.member.Cluster = cl
	stop := context.AfterFunc(ctx, func() { r.disengage(s, e) })
	e.release = func() {
		stop()
		unshare()
	}
	return e
}

// disengage is called when the context of an engagement has ended. A later one of the same name is not touched.
func (r *reporter) disengage(s *slot, e *engagement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.engaged == e {
		s.engaged = nil
		e.release()
		r.settleLocked(s)
	}
}

// settleLocked tells the fleet what the name stands for now. For each name there is one goroutine at most, so that the fleet
// is told in order: a removal takes until the member is drained.
func (r *reporter) settleLocked(s *slot) {
	if !s.busy && !r.closed {
		s.busy = true
		r.running.Go(func() { r.settle(s) })
	}
}

func (r *reporter) settle(s *slot) {
	for e, news := r.next(s); news; e, news = r.next(s) {
		var err error
		if e == nil {
			err = r.members.Remove(r.ctx, s.name)
		} else {
			err = r.members.Set(e.member)
		}
		if err != nil && r.ctx.Err() == nil && !errors.Is(err, fleet.ErrStopped) {
			logf.FromContext(r.ctx).Error(err, "Cannot report what the provider has engaged", "cluster", s.name)
		}
	}
}

// next returns what the fleet is to be told of a name, if that is news. At the end of the provider nothing is: the fleet
// drains all members by itself then.
func (r *reporter) next(s *slot) (e *engagement, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.engaged == s.reported || r.ctx.Err() != nil {
		s.busy = false
		if s.engaged == nil && r.slots[s.name] == s {
			delete(r.slots, s.name)
		}
		return nil, false
	}
	s.reported = s.engaged
	return s.engaged, true
}

// wait returns when nothing is reported any more. The context of the reporter has ended.
func (r *reporter) wait() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}
