package sharding

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// member is what a replica knows of a member of the fleet.
type member struct {
	key, pool string
	weight    int64
	labelled  bool          // a label says the weight
	bucket    int           // -1 while there is no table, or if it is of another pool
	notBefore time.Duration // by the monotonic clock: it came from another key or pool
	tenure    *tenure       // that was not released, nil if there is none
	forgotten bool          // it is no member any more, but has a tenure
}

// bucket is a part of the members.
type bucket struct {
	weight   int64 // of its members, by their labels
	members  int
	local    int     // 1 if the local cluster is in it, which is no member
	measured int     // of these, those without a label that says their weight
	tenures  int     // that were not released
	term     *term   // nil if the session does not hold the bucket
	due      bool    // the session owns the bucket, and is to give it up
	ended    instant // when the last term ended, or the bucket became due
}

// term is the time for which a session holds a bucket.
type term struct {
	session *session
	epoch   int64
	ending  atomic.Pointer[ending]
	spent   atomic.Int64 // in nanoseconds, by reconciles since that was last looked at
}

func (t *term) over() error {
	if ending := t.ending.Load(); ending != nil {
		return ending.err
	}
	return t.session.over()
}

// tenure implements fleet.Tenure.
type tenure struct {
	*term
	replica   *Replica
	name      fleet.ClusterName
	key, pool string
	bucket    int // guarded by the replica's lock
	labelled  atomic.Bool
	meter     func(time.Duration) // nil if costs are not measured
}

var _ fleet.Tenure = (*tenure)(nil)

// Epoch implements fleet.Tenure.
func (t *tenure) Epoch() int64 { return t.epoch }

// Remaining implements fleet.Tenure.
func (t *tenure) Remaining() time.Duration {
	if t.ending.Load() != nil {
		return 0
	}
	return t.session.remaining()
}

// Over implements fleet.Tenure.
func (t *tenure) Over() error { return t.over() }

// Covers implements fleet.Tenure.
func (t *tenure) Covers(labels map[string]string) bool {
	return keyOf(t.name, labels) == t.key && labels[LabelPool] == t.pool
}

// Release implements fleet.Tenure.
func (t *tenure) Release() { t.replica.released(t) }

func keyOf(name fleet.ClusterName, labels map[string]string) string {
	if key := labels[LabelKey]; key != "" {
		return key
	}
	return string(name)
}

const heaviest = 1000

// weightOf returns the weight of a member, and whether a label says it.
func weightOf(labels map[string]string) (weight int64, labelled bool) {
	if text, ok := labels[LabelWeight]; ok {
		if weight, err := strconv.ParseInt(text, 10, 64); err == nil && weight >= 1 && weight <= heaviest {
			return weight, true
		}
	}
	return 1, false
}

// Own implements [fleet.Ownership].
func (r *Replica) Own(name fleet.ClusterName, labels map[string]string) fleet.Owner {
	key, pool := keyOf(name, labels), labels[LabelPool]
	weight, labelled := weightOf(labels)
	if name == "" {
		weight = 0 // the local cluster is no member
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.members[name]
	if !known || m.forgotten || m.key != key || m.pool != pool || m.weight != weight || m.labelled != labelled {
		r.placeLocked(&m, known && !m.forgotten, member{key: key, pool: pool, weight: weight, labelled: labelled})
		r.members[name] = m
	}
	switch {
	case m.bucket < 0 && pool != r.opts.Pool:
		return fleet.Owner{Why: "it belongs to another pool of replicas"}
	case m.bucket < 0, r.table.content == nil:
		return fleet.Owner{Why: "this replica has not found out yet which ones there are"}
	}
	b := &r.buckets[m.bucket]
	if b.term == nil || b.term.over() != nil {
		return r.otherOwnerLocked(m.bucket)
	}
	if m.tenure != nil && m.tenure.over() == nil && m.tenure.key == key && m.tenure.pool == pool {
		return m.tenure.owner(labelled)
	}
	if why := r.notYetLocked(m); why != "" {
		return fleet.Owner{Replica: r.opts.Name, Why: why}
	}
	m.tenure = &tenure{term: b.term, replica: r, name: name, key: key, pool: pool, bucket: m.bucket}
	if r.costs != nil {
		m.tenure.meter = m.tenure.spend
	}
	b.tenures++
	r.tenures++
	r.members[name] = m
	return m.tenure.owner(labelled)
}

// owner tells that this replica owns the member, whose weight a label says or not.
func (t *tenure) owner(labelled bool) fleet.Owner {
	t.labelled.Store(labelled)
	return fleet.Owner{Replica: t.replica.opts.Name, Tenure: t, Spent: t.meter}
}

// notYetLocked says why this replica does not take a member now of which it holds the bucket.
func (r *Replica) notYetLocked(m member) string {
	switch {
	case m.tenure != nil:
		return "what ran for it under an earlier tenure has not ended yet"
	case r.session.remaining() <= 0:
		return "this replica is suspended, as it cannot renew its session"
	case r.clock.now().mono < m.notBefore:
		r.waitLocked(m.notBefore)
		return "its labels have moved it, and its replica before may not know yet"
	}
	return ""
}

// otherOwnerLocked tells the owner of a bucket that this replica does not hold.
func (r *Replica) otherOwnerLocked(b int) fleet.Owner {
	t := r.table.content
	owner := replicaOf(t.Owner[b])
	to, moving := t.Moving[b]
	switch {
	case owner == "":
		return fleet.Owner{Why: "no replica has taken it yet"}
	case moving && owner == r.opts.Name:
		return fleet.Owner{Replica: owner, Why: "it moves to " + replicaOf(to)}
	case owner == r.opts.Name && r.session != nil && t.Owner[b] != r.session.name:
		return fleet.Owner{Replica: owner, Why: "this replica had it before it began anew, and others have yet to find out that it did"}
	default:
		return fleet.Owner{Replica: owner}
	}
}

// Forget implements [fleet.Ownership].
func (r *Replica) Forget(name fleet.ClusterName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.members[name]
	if !known || m.forgotten {
		return
	}
	r.countLocked(m, -1)
	if m.tenure == nil {
		delete(r.members, name)
		return
	}
	m.forgotten = true
	r.members[name] = m
}

// released notes that nothing runs any more under a tenure.
func (r *Replica) released(t *tenure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, known := r.members[t.name]
	if !known || m.tenure != t {
		return // it was released before
	}
	if m.tenure = nil; m.forgotten {
		delete(r.members, t.name)
	} else {
		r.members[t.name] = m
	}
	r.tenures--
	b := &r.buckets[t.bucket]
	if b.tenures--; b.tenures == 0 && t.over() != nil {
		r.work.send()
	}
}

// placeLocked makes m what it now is, where its description is new.
func (r *Replica) placeLocked(m *member, counted bool, now member) {
	if counted {
		r.countLocked(*m, -1)
		now.notBefore = m.notBefore
		if came := now.key != m.key || now.pool != m.pool; came && now.pool == r.opts.Pool && !r.holdsLocked(m.bucket) {
			now.notBefore = r.clock.now().mono + r.times.lease
		}
	}
	now.tenure = m.tenure
	now.bucket = r.bucketOfLocked(now.key, now.pool)
	*m = now
	r.countLocked(now, 1)
}

func (r *Replica) bucketOfLocked(key, pool string) int {
	if pool != r.opts.Pool || len(r.buckets) == 0 {
		return -1
	}
	return protocol.Bucket(key, len(r.buckets))
}

// holdsLocked reports whether this replica holds a bucket, so that no other works on its members.
func (r *Replica) holdsLocked(b int) bool {
	return b >= 0 && b < len(r.buckets) && r.buckets[b].term != nil && r.buckets[b].term.over() == nil
}

// countLocked adds a member to its bucket or to its pool, or takes it away.
func (r *Replica) countLocked(m member, n int) {
	r.kin.changed = true
	if m.pool != r.opts.Pool {
		if r.pools[m.pool] += n; r.pools[m.pool] == 0 {
			delete(r.pools, m.pool)
		}
	}
	if m.bucket < 0 {
		return
	}
	b := &r.buckets[m.bucket]
	switch {
	case m.weight == 0:
		b.local += n
	case m.labelled:
		b.members += n
	default:
		b.members += n
		b.measured += n
	}
	b.weight += int64(n) * m.weight
	r.settling.came(r.clock.now())
	r.inputLocked()
}

// applyLocked makes the buckets what the table says.
func (r *Replica) applyLocked() {
	t := r.table.content
	if t.Buckets() != len(r.buckets) {
		r.shareOutLocked(t.Buckets())
	}
	for i := range r.buckets {
		b := &r.buckets[i]
		holds := r.session != nil && r.session.over() == nil && !r.session.draining.Load() && t.Holds(r.session.name, i)
		due := r.session != nil && !holds && t.Owner[i] == r.session.name
		holding := b.term != nil && b.term.over() == nil
		switch {
		case holding && !holds:
			r.endLocked(b, r.whyNotLocked(i))
		case due && !b.due:
			b.ended = r.clock.now()
		case holds && (!holding || b.term.epoch != t.Epoch[i]):
			r.endLocked(b, errors.New("another replica had the member meanwhile"))
			b.term = &term{session: r.session, epoch: t.Epoch[i]}
		}
		b.due = due
	}
	r.news.send()
}

// endLocked ends the term of a bucket.
func (r *Replica) endLocked(b *bucket, why error) {
	if b.term == nil {
		return
	}
	b.term.ending.CompareAndSwap(nil, &ending{why})
	b.term, b.ended = nil, r.clock.now()
}

// whyNotLocked says why the session does not hold a bucket.
func (r *Replica) whyNotLocked(b int) error {
	if lost := r.session.over(); lost != nil {
		return lost
	}
	if r.session.draining.Load() {
		return errors.New("this replica is about to end")
	}
	if to, moving := r.table.content.Moving[b]; moving {
		return fmt.Errorf("the replica %s is to work on it", replicaOf(to))
	}
	return fmt.Errorf("the session %s does not own it any more", r.session.name)
}

// shareOutLocked makes as many buckets, and finds out anew in which the members are.
func (r *Replica) shareOutLocked(buckets int) {
	for i := range r.buckets {
		r.endLocked(&r.buckets[i], errTableGone)
	}
	r.buckets = make([]bucket, buckets)
	clear(r.pools)
	for name, m := range r.members {
		m.bucket = r.bucketOfLocked(m.key, m.pool)
		r.members[name] = m
		if !m.forgotten {
			r.countLocked(m, 1)
		}
		if t := m.tenure; t != nil {
			t.bucket = protocol.Bucket(t.key, buckets)
			r.buckets[t.bucket].tenures++
			r.buckets[t.bucket].ended = r.clock.now()
		}
	}
}
