package dependents

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// members is a source of work that follows the fleet:
//
//   - when a member has a new engagement, what owners have there is looked at: dependents may have been deleted between two
//     engagements, of which no event tells;
//   - when a member comes, goes, gets other labels or begins to leave, owners may have other targets;
//   - when a member changes its state, the owners that have dependents there may say so in their status.
type members struct {
	*engine
}

// memberSeen is what matters of a member.
type memberSeen struct {
	engagement *fleet.Engagement
	identity   types.UID
	state      fleet.State
	since      time.Time // when it came to that
	failing    bool      // something keeps it from being connected
	epoch      int64     // in which it was this replica's last
	leaving    bool
	paused     bool
	labels     map[string]string
	owners     bool // may be in it
}

// Start implements source.TypedSource. The goroutine ends with ctx.
func (m members) Start(ctx context.Context, _ workqueue.TypedRateLimitingInterface[work]) error {
	m.seekIn(mcreconcile.LocalCluster)
	go m.follow(ctx)
	return nil
}

func (m members) String() string {
	return "members of the fleet, for the dependents of controller " + m.cfg.name
}

func (m members) follow(ctx context.Context) {
	before := map[fleet.ClusterName]memberSeen{}
	for change := range m.access.Manager.GetFleet().Controller(m.cfg.name).Changes(ctx) {
		name := change.Status.Name
		if name == mcreconcile.LocalCluster {
			before[name] = m.followLocal(before[name], change)
			continue
		}
		if change.Status.State == "" {
			m.removed(name, change.Status.Leaving)
			delete(before, name)
			continue
		}
		m.ledger.present(record.Site{Name: name})
		now := memberSeen{
			engagement: change.Engagement, state: change.Status.State, since: change.Status.Since,
			leaving: change.Status.Leaving, paused: change.Status.Paused, labels: change.Status.Labels,
			failing: change.Status.Reason != "" && (change.Status.State == fleet.Pending || change.Status.State == fleet.Connecting),
			owners:  m.access.Within(m.cfg.ownersIn, name),
		}
		last := before[name]
		now.identity, now.epoch = last.identity, cmp.Or(change.Status.Epoch, last.epoch)
		if change.Engagement != nil {
			if id, err := m.access.Identities.OfEngagement(change.Engagement); err == nil {
				now.identity = id.UID
				m.ledger.present(record.Site{Name: name, Identity: id.UID})
			}
		}
		before[name] = now
		m.compare(name, last, now)
	}
}

// removed sees to a name that is no member's any more, which may have been about to leave.
func (m members) removed(name mcreconcile.ClusterName, leaving bool) {
	m.forgetOrigin(name, nil)
	m.ledger.absent(name, leaving)
	m.ledger.dropTenure(name, func() bool { _, is := m.access.Manager.GetFleet().Status(name); return is })
	m.changed(name, true)
}

// forgetOrigin drops the owners of a name that is no member's any more, or another cluster's, with the last engagement that is known.
func (m members) forgetOrigin(name mcreconcile.ClusterName, last *fleet.Engagement) {
	m.ledger.forgetOrigin(name)
	m.deletions.forgetOrigin(name, m.clusterNow(name, last))
}

// clusterNow returns the cluster that has a name at this moment: that of the last engagement that is known, or of the next one, if that can be used
// by now. It is nil if there is none.
func (m members) clusterNow(name mcreconcile.ClusterName, last *fleet.Engagement) cluster.Cluster {
	if e, err := m.access.Manager.GetFleet().Engagement(name); err == nil {
		last = e
	}
	if last == nil {
		return nil
	}
	return last.Cluster()
}

// reopen asks for the owners that are known of a cluster that is connected anew: no event tells of those that went meanwhile, as while it was drained.
// There may be the next connection by now, which then comes here too.
func (m members) reopen(name mcreconcile.ClusterName, last, now memberSeen) {
	e := now.engagement
	if e == nil || e == last.engagement || e.Cluster() != m.clusterNow(name, e) {
		return
	}
	for _, req := range m.deletions.reopen(name, e.Cluster()) {
		m.owners.add(req)
	}
	for _, o := range m.ledger.all() {
		if o.req.ClusterName == name {
			m.owners.addLow(o.req)
		}
	}
}

// compare asks for what is to be done because a member has changed.
func (m members) compare(name mcreconcile.ClusterName, last, now memberSeen) {
	if last.identity != "" && last.identity != now.identity {
		m.forgetOrigin(name, now.engagement) // its owners are those of another cluster
	}
	m.reopen(name, last, now)
	if last.owners && !now.owners {
		for _, o := range m.ledger.all() {
			if o.req.ClusterName == name {
				m.owners.add(o.req)
			}
		}
	}
	if last.engagement == nil && now.engagement != nil {
		m.seekIn(name)
	}
	if now.state == fleet.NotOwned {
		m.ledger.endTenure(name, last.epoch) // its owners are another replica's to work on
		m.deletions.giveAway(name)
	}
	relabelled := last.state == "" || !maps.Equal(last.labels, now.labels) || last.leaving != now.leaving
	if relabelled || last.state != now.state || last.failing != now.failing || last.paused != now.paused || last.engagement != now.engagement {
		m.changed(name, relabelled || (last.state == fleet.Ready) != (now.state == fleet.Ready))
	}
	m.revisit(name, last, now, relabelled)
}

// revisit asks for a look at what owners have in a member, where no event may have told what happened there.
func (m members) revisit(name mcreconcile.ClusterName, last, now memberSeen, relabelled bool) {
	given := now.state == fleet.NotOwned && !now.since.Equal(last.since) // meanwhile it may have gone, and be back
	connected := now.engagement != nil && last.engagement != now.engagement
	if !connected && !relabelled && !given {
		return
	}
	back := m.access.IsShared() && (connected || given || last.state == "") // and another replica may sweep it
	for _, o := range m.ledger.all() {
		if o.concerns(name) || back && o.hasGivenUp() {
			m.works.addLow(m.placing(o.req, name))
		}
	}
}

// changed has the accounts of owners kept anew: of those that a member concerns, and, at low priority, of all if they may have other targets now.
// Clusters are looked at again for which Desired needs that member, and owners that cannot be planned, as Targets may need it: nothing else brings
// the work back where it was gone.
func (m members) changed(name mcreconcile.ClusterName, targets bool) {
	for _, o := range m.ledger.all() {
		if targets {
			o.wantTargets()
			if o.isUnplanned() {
				m.owners.addLow(o.req)
			}
		}
		for _, in := range o.needing(name) {
			m.works.add(m.placing(o.req, in))
		}
		switch {
		case o.concerns(name):
			m.works.addAfter(accountOf(o.req), o.accountDelay()) // others may change with it, as when a link breaks
		case targets:
			m.works.addLowAfter(accountOf(o.req), o.accountDelay())
		}
	}
}

// followLocal has all owners in the local cluster planned when this replica begins to work on it: every replica hears of them, and
// those that have not changed since are in no queue.
func (m members) followLocal(last memberSeen, change fleet.Change) memberSeen {
	now := memberSeen{engagement: change.Engagement, state: change.Status.State, epoch: change.Status.Epoch}
	switch {
	case now.state == fleet.NotOwned:
		m.ledger.endTenure(mcreconcile.LocalCluster, last.epoch)
	case now.engagement != nil && now.engagement != last.engagement:
		m.seekIn(mcreconcile.LocalCluster)
		if m.access.Within(m.cfg.ownersIn, mcreconcile.LocalCluster) {
			m.works.addLow(work{task: review})
		}
	}
	if now.epoch == 0 {
		now.epoch = last.epoch
	}
	return now
}

// review has all owners in the local cluster planned that its cache has.
func (c *engine) review(ctx context.Context, at remote.Session) error {
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	err := c.eachCached(ctx, at.Cluster, func(owner client.Object) { c.owners.addLow(requestOf(at.Name(), owner)) })
	if err != nil {
		return fmt.Errorf("reading the owners in %s: %w", at, err)
	}
	return nil
}

// eachCached calls do with each owner that the cache of a cluster has.
func (c *engine) eachCached(ctx context.Context, home cluster.Cluster, do func(client.Object)) error {
	list, err := c.owner.NewList(c.access.Manager.GetScheme())
	if err != nil {
		return err
	}
	if err := home.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		if owner, ok := item.(client.Object); ok {
			do(owner)
		}
		return nil
	})
}
