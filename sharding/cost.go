package sharding

import (
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// spend counts what a reconcile of the member has cost. It is called by many reconciles at once.
func (t *tenure) spend(took time.Duration) {
	if !t.labelled.Load() {
		t.spent.Add(int64(took))
	}
}

// measure looks at what buckets cost, if it is time to. What is to be said of that goes with the next renewal of the session. It
// returns when to look again.
func (r *Replica) measure(s *session) time.Duration {
	if r.costs == nil {
		return r.times.lease
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.now().mono
	if left := r.costs.Due(now); left > 0 || r.table.content == nil {
		return max(left, r.times.step)
	}
	for session, problem := range r.costs.Hear(now, r.table.content, r.sayingsLocked()) {
		r.log.Info("What a replica says of the costs of its members cannot be used; they count as average",
			"session", session, "problem", oneline.Text(problem.Error(), maxError))
	}
	r.costs.Sample(now, s.remaining() > 0, r.spentLocked)
	if text, ok := r.costs.Say(now); ok {
		s.costs.Store(&text)
	}
	if r.costs.Heed(now) {
		r.inputLocked()
	}
	return r.costs.Due(now)
}

// sayingsLocked returns what each session says of its costs.
func (r *Replica) sayingsLocked() map[string]string {
	texts := make(map[string]string, len(r.peers))
	for session, p := range r.peers {
		if p.lease != nil {
			texts[session] = p.lease.Annotations[annotationCosts]
		}
	}
	return texts
}

// spentLocked returns the term in which this replica holds a bucket, and what its members have cost since the last call.
func (r *Replica) spentLocked(b int) (any, time.Duration) {
	t := r.buckets[b].term
	if t == nil || t.over() != nil {
		return nil, 0
	}
	return t, time.Duration(t.spent.Swap(0))
}

// weightsLocked returns the weight of each bucket, and what a member weighs of the label's weight 1.
func (r *Replica) weightsLocked() (weights []int64, unit float64) {
	if r.costs == nil {
		weights = make([]int64, len(r.buckets))
		for i := range r.buckets {
			weights[i] = r.buckets[i].weight
		}
		return weights, 1
	}
	local := -1
	if m, known := r.members[""]; known {
		local = m.bucket
	}
	loads := make([]protocol.Load, len(r.buckets))
	for i := range r.buckets {
		b := &r.buckets[i]
		loads[i] = protocol.Load{Labelled: b.weight - int64(b.measured), Measured: b.measured, Level: protocol.Unmeasured}
		if b.measured > 0 || i == local { // what is said of the others is of members that have gone
			loads[i].Level = r.costs.Used(i)
		}
	}
	return protocol.Weigh(loads), protocol.WeightUnit
}

// most returns how many buckets a plan may move for balance. Where costs are measured, that is for the first replica alone to
// decide: two know a little different costs, and would move buckets to and fro.
func (t *turn) most(replicas []protocol.Replica) int {
	switch {
	case t.rank > 0 && (t.costs != nil || t.plannerMeasures()):
		return -1
	case t.costs == nil:
		return 0
	}
	return t.l.allowance.Most(t.now.mono, t.was.Buckets(), replicas)
}

// plannerMeasures reports whether the first replica measures costs.
func (t *turn) plannerMeasures() bool {
	for _, m := range t.current().Sessions {
		if p := t.peers[m.Session]; t.lives(m.Session, p) && !p.draining() {
			return p.lease.Annotations[annotationCosts] != ""
		}
	}
	return false
}

// addCostsLocked adds to a status what the session says of costs.
func (r *Replica) addCostsLocked(one *ReplicaStatus) {
	if r.costs == nil {
		return
	}
	var problem error
	if one.Measured, one.StrangeCosts, problem = r.costs.Said(one.Session); problem != nil {
		one.CostProblem = oneline.Text(problem.Error(), maxError)
	}
}
