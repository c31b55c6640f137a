package dependents

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ledger is what a controller knows that is not written anywhere. All of it is found out again after a restart.
type ledger struct {
	mu       sync.Mutex // guards what follows; each owner has a lock of its own, which may be taken while this one is held
	owners   map[mcreconcile.Request]*ownerState
	vain     map[mcreconcile.Request]bool                                 // planning the owner has failed when that was last tried
	asked    map[mcreconcile.Request]map[mcreconcile.ClusterName]struct{} // where owners have dependents that are not known
	awaiting awaited
	missing  map[record.Site]missed
	pruned   int                                   // how many of missing were left when it was last pruned
	leads    map[mcreconcile.ClusterName]types.UID // which cluster has a name, as the members' source has seen last
	written  map[origin][]*ownWrite                // the last ones
	tenures  map[mcreconcile.ClusterName]int64     // in which the owners of a cluster were read, where replicas share the clusters
	forgot   time.Time                             // when the owners of a cluster were last forgotten, which others may have written for since
}

// missed is a cluster that is not in the fleet.
type missed struct {
	since time.Time
	// left says that the member was about to leave when it went, and was which cluster it was, empty if that is not known. A name alone has these.
	left bool
	was  types.UID
}

// dependentKey names an object of a cluster.
type dependentKey struct {
	cluster mcreconcile.ClusterName
	kind    schema.GroupKind
	name    types.NamespacedName
}

// origin is an owner of one cluster. Another cluster may have one of the same UID, as it was made from a backup of the first.
type origin struct {
	in  mcreconcile.ClusterName
	uid types.UID
}

func newLedger() *ledger {
	return &ledger{
		owners:   map[mcreconcile.Request]*ownerState{},
		vain:     map[mcreconcile.Request]bool{},
		asked:    map[mcreconcile.Request]map[mcreconcile.ClusterName]struct{}{},
		awaiting: newAwaited(),
		missing:  map[record.Site]missed{},
		leads:    map[mcreconcile.ClusterName]types.UID{},
		written:  map[origin][]*ownWrite{},
		tenures:  map[mcreconcile.ClusterName]int64{},
	}
}

// get returns what is known of an owner, nil if nothing is.
func (l *ledger) get(req mcreconcile.Request) *ownerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owners[req]
}

// of returns what is known of an owner, from now on something. What is known of one that had the name before was forgotten.
func (l *ledger) of(req mcreconcile.Request, uid types.UID) *ownerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	o, ok := l.owners[req]
	if !ok {
		o = newOwnerState(req, uid)
		o.born = l.forgot
		l.owners[req] = o
	}
	delete(l.asked, req)
	return o
}

// forget drops an owner that is gone, and returns the clusters in which there may be dependents of it.
func (l *ledger) forget(req mcreconcile.Request) []mcreconcile.ClusterName {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.asked[req]
	delete(l.asked, req)
	if o, ok := l.owners[req]; ok {
		in = maps.Clone(in)
		if in == nil {
			in = map[mcreconcile.ClusterName]struct{}{}
		}
		for _, name := range o.clusters() {
			in[name] = struct{}{}
		}
	}
	l.forgetLocked(req)
	return slices.Collect(maps.Keys(in))
}

// replan notes what an owner asks for. Its account may have dropped it meanwhile, and then members may have changed unseen.
func (l *ledger) replan(o *ownerState, p *plan, keys record.Keys) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[o.req] != o {
		l.owners[o.req] = o
		o.wantTargets()
	}
	o.replan(p, keys)
}

// finished drops an owner that has nothing left by a plan, unless it is to have dependents again, or another one has its name now.
func (l *ledger) finished(o *ownerState, by *plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[o.req] == o && o.follows(by) {
		l.forgetLocked(o.req)
	}
}

func (l *ledger) forgetLocked(req mcreconcile.Request) {
	if o, ok := l.owners[req]; ok {
		delete(l.written, origin{req.ClusterName, o.uid})
	}
	delete(l.owners, req)
	l.awaiting.keep(req, func(dependentKey) bool { return false })
}

// forgetOrigin drops the owners of a name that is no member's any more, or another cluster's. Those of the cluster that has the
// name now may be known already.
func (l *ledger) forgetOrigin(name mcreconcile.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetOriginLocked(name, (*ownerState).isAtHome)
}

// inTenure notes in which tenure of this replica work is done for the owners of a cluster. What is known of them from another one
// may not hold any more: another replica may have worked on them since.
func (l *ledger) inTenure(name mcreconcile.ClusterName, epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenures[name] != epoch {
		l.forgetOriginLocked(name, nobody)
		l.tenures[name] = epoch
	}
}

// endTenure forgets the owners of a cluster, unless there is another tenure already.
func (l *ledger) endTenure(name mcreconcile.ClusterName, epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tenures[name] == epoch {
		l.forgetOriginLocked(name, nobody)
		delete(l.tenures, name)
	}
}

// dropTenure forgets the tenure of a name that is no member's any more, unless it is one's again by now: its owners may be known already.
func (l *ledger) dropTenure(name mcreconcile.ClusterName, isMember func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !isMember() {
		delete(l.tenures, name)
	}
}

func nobody(*ownerState) bool { return false }

func (l *ledger) forgetOriginLocked(name mcreconcile.ClusterName, but func(*ownerState) bool) {
	l.forgot = time.Now()
	for req, o := range l.owners {
		if req.ClusterName == name && !but(o) {
			l.forgetLocked(req)
		}
	}
	maps.DeleteFunc(l.asked, func(req mcreconcile.Request, _ map[mcreconcile.ClusterName]struct{}) bool {
		return req.ClusterName == name
	})
	maps.DeleteFunc(l.vain, func(req mcreconcile.Request, _ bool) bool { return req.ClusterName == name })
}

// mostVain is how many owners are remembered that cannot be planned. Where a cluster cannot be told from others, whoever may write a dependent may
// name any.
const mostVain = 100_000

// tried notes whether planning an owner has failed, and not for what may pass by itself.
func (l *ledger) tried(req mcreconcile.Request, err error) {
	passes := isUnanswered(err) || isOutdated(err) || errors.Is(err, record.ErrOutdated) || errors.Is(err, errUnseenDeletion) || remote.IsHung(err) ||
		remote.IsAway(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.vain, req); err != nil && !passes && len(l.vain) < mostVain {
		l.vain[req] = true
	}
}

// isVain reports whether planning an owner has failed when that was last tried.
func (l *ledger) isVain(req mcreconcile.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.vain[req]
}

// mostAsked is how many owners that are not known are remembered. Whoever may write a dependent may name any.
const mostAsked = 10_000

// ask notes that a cluster has dependents of an owner that is not known.
func (l *ledger) ask(req mcreconcile.Request, in mcreconcile.ClusterName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked[req] == nil {
		if len(l.asked) >= mostAsked {
			return // sweeps find them
		}
		l.asked[req] = map[mcreconcile.ClusterName]struct{}{}
	}
	l.asked[req][in] = struct{}{}
}

// await notes that an owner is to be looked at when something changes about an object, unless nothing is known of the owner any more.
func (l *ledger) await(owner mcreconcile.Request, key dependentKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.owners[owner]; ok {
		l.awaiting.add(owner, key)
	}
}

// settled notes that an owner does not wait for an object any more.
func (l *ledger) settled(owner mcreconcile.Request, key dependentKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaiting.remove(owner, key)
}

// awaitOnly notes that in a cluster an owner waits for nothing else than what is wanted there.
func (l *ledger) awaitOnly(owner mcreconcile.Request, in mcreconcile.ClusterName, wanted map[dependentKey]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaiting.keep(owner, func(key dependentKey) bool { return key.cluster != in || wanted[key] })
}

// waitingFor returns the owners that wait for an object.
func (l *ledger) waitingFor(key dependentKey) []mcreconcile.Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.awaiting.by(key)
}

// all returns all owners.
func (l *ledger) all() []*ownerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.owners))
}

// missingFor returns for how long a cluster has been missed that is not in the fleet, from now on if it was not before.
// One that is back is not missed, whatever a reconcile says that began before.
func (l *ledger) missingFor(site record.Site) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if site.Identity != "" && site.Identity == l.leads[site.Name] {
		return 0
	}
	return time.Since(l.missLocked(site).since)
}

func (l *ledger) missLocked(site record.Site) missed {
	m, ok := l.missing[site]
	if !ok {
		m.since = time.Now()
		l.pruneMissingLocked()
		l.missing[site] = m
	}
	return m
}

// hasLeft reports whether a cluster that is not in the fleet was about to leave when it went. It is not known of one that had the name before.
func (l *ledger) hasLeft(site record.Site) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.missing[record.Site{Name: site.Name}]
	return m.left && (site.Identity == "" || site.Identity == m.was)
}

// mostMissing is how many clusters are missed before those are forgotten that no owner has any more. An owner's record may name any.
const mostMissing = 10_000

func (l *ledger) pruneMissingLocked() {
	if len(l.missing) < max(mostMissing, 2*l.pruned) {
		return
	}
	noted := map[record.Site]bool{}
	for _, o := range l.owners {
		for _, s := range o.sites() {
			noted[s], noted[record.Site{Name: s.Name}] = true, true
		}
	}
	maps.DeleteFunc(l.missing, func(s record.Site, _ missed) bool { return !noted[s] })
	l.pruned = len(l.missing)
}

// visited notes that a member elsewhere is in the fleet, unless it is not elsewhere any more: it may be forgotten already.
func (l *ledger) visited(site record.Site, isElsewhere func(mcreconcile.ClusterName) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isElsewhere(site.Name) {
		l.presentLocked(site)
	}
}

// present notes that a cluster is in the fleet.
func (l *ledger) present(site record.Site) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.presentLocked(site)
}

func (l *ledger) presentLocked(site record.Site) {
	delete(l.missing, site)
	delete(l.missing, record.Site{Name: site.Name})
	if site.Identity != "" {
		l.leads[site.Name] = site.Identity
	}
}

// leading returns which cluster a name has led to last, empty if that is not known, or the name is no member's.
func (l *ledger) leading(name mcreconcile.ClusterName) types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads[name]
}

// absent notes that a name is no member's any more, and whether the member was about to leave.
func (l *ledger) absent(name mcreconcile.ClusterName, left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if site := (record.Site{Name: name}); left {
		l.missing[site] = missed{l.missLocked(site).since, true, l.leads[name]}
	}
	delete(l.leads, name)
	l.awaiting.lost(name) // nobody tells of what changes there
}
