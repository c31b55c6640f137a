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

	mu     sync.Mutex // guards what follows; what is reported under it waits for nothing
	slots  map[fleet.ClusterName]*slot
	closed bool
}

var _ multicluster.Aware = (*reporter)(nil)

// slot is a name, and what has it. It is forgotten when nothing has it.
type slot struct {
	name    fleet.ClusterName
	engaged *engagement // nil for none
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

// settleLocked tells the fleet what the name stands for now. At the end of the provider nothing is told: the fleet drains all
// members by itself then.
func (r *reporter) settleLocked(s *slot) {
	if r.closed || r.ctx.Err() != nil {
		return
	}
	if s.engaged == nil {
		delete(r.slots, s.name)
		r.members.Remove(s.name)
		return
	}
	if err := r.members.Set(s.engaged.member); err != nil && !errors.Is(err, fleet.ErrStopped) {
		logf.FromContext(r.ctx).Error(err, "Cannot report what the provider has engaged", "cluster", s.name)
	}
}

// close ends that anything is reported.
func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
