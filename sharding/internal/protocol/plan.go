package protocol

import (
	"cmp"
	"slices"
)

// DefaultAtOnce is the share of the weight that may be moving at once for the sake of balance.
const DefaultAtOnce = 0.1

// Input is what a plan is made of, besides the table.
type Input struct {
	// Replicas are the live ones, in any order. Those that have not joined count for nothing.
	Replicas []Replica
	// Weight is that of each bucket: the sum of its members', and zero if it has none. Nil means that no bucket has members.
	Weight []int64
	// AtOnce is the share of the weight that may be moving at once for the sake of balance. Zero means DefaultAtOnce.
	AtOnce float64
	// Most is how many buckets this plan may move for the sake of balance. Zero means that there is no limit, and a negative number
	// that it moves none.
	Most int
	// Keep has buckets that stay where they are, although balance would move them: their owner did not give them up in time.
	Keep map[int]bool
	// Settling says that replicas have just joined, and that more may follow. What is owned then stays where it is, and a
	// table of which nobody owns anything stays so.
	Settling bool
	// Stalled says that several revisions have lived side by side for so long that this is no rolling update on its way. What is
	// owned is balanced then.
	Stalled bool
}

// Replica is a live session. Its revision and its capacity are in the table.
type Replica struct {
	Session string
	// Draining says that the replica is about to end.
	Draining bool
}

// Step is a transition of a plan.
type Step struct {
	Do     Transition
	Bucket int
	// From owns the bucket. It is empty for what is claimed.
	From string
	// To is to own it. It is empty for what is cancelled.
	To  string
	Why Reason
}

// Transition is what a planner does with a bucket.
type Transition string

// The transitions of a plan.
const (
	Claimed   Transition = "claimed"
	Moved     Transition = "moved"
	Cancelled Transition = "cancelled"
)

// Reason is why a planner does it.
type Reason string

// The reasons of a plan.
const (
	// Unowned buckets are claimed.
	Unowned Reason = "unowned"
	// Draining owners lose what they own.
	Draining Reason = "draining"
	// TargetLost is a move to a session that has become no target: it is gone, or draining.
	TargetLost Reason = "target-lost"
	// Overloaded owners lose what is above their share.
	Overloaded Reason = "overloaded"
	// Underloaded replicas are filled up, such as those that have just joined.
	Underloaded Reason = "underloaded"
)

// Plan returns the table as it should become, and by which steps: those are claims, moves and cancelled moves, so that nothing
// that a plan says can make two replicas work on a bucket. It does not change t, and counts no write.
//
// What nobody owns is claimed, and what a draining session owns moves, at once: to the least loaded replica of the newest
// revision. The rest stays until the load of a replica is out of bounds (see bounds), and moves in parts of Input.AtOnce.
// While several revisions live, the rest stays in any case. Buckets with members are planned by weight, and then those
// without by number.
func Plan(t *Table, in Input) (*Table, []Step) {
	p := &plan{table: t.Clone(), in: in, sessions: sessions(t, in.Replicas)}
	if in.Settling && !slices.ContainsFunc(t.Owner, func(owner string) bool { return owner != "" }) {
		return p.table, nil
	}
	full, empty := make([]int64, t.Buckets()), make([]int64, t.Buckets())
	for b := range t.Owner {
		if b < len(in.Weight) && in.Weight[b] > 0 {
			full[b] = in.Weight[b]
		} else {
			empty[b] = 1
		}
	}
	for _, weight := range [][]int64{full, empty} {
		p.layOut(weight)
		p.place()
		if in.balances(t) {
			p.balance()
		}
	}
	return p.table, p.steps
}

// plan is one on its way, for the buckets that have a weight.
type plan struct {
	table *Table
	in    Input
	steps []Step

	sessions map[string]*session // The live ones.
	takers   []*session          // Of these, in order of joining, those that can be given something.
	weight   []int64             // Of the buckets that are planned now, and zero for the others.
	total    int64               // What the takers have, or will have once what moves has moved.
	moving   int64               // The part of total that moves.
	balanced int                 // Buckets that this plan moves for balance.
	homeless []stray
}

// session is a live one, with what the plan makes of it.
type session struct {
	Member
	capacity int64
	draining bool
	newest   bool  // It is of the newest revision.
	load     int64 // With what moves to it, and without what moves away.
	buckets  []int // Those that it owns, and that balance may move.
}

// stray is a bucket that needs another owner.
type stray struct {
	bucket int
	why    Reason
}

// sessions returns the live ones among those that have joined.
func sessions(t *Table, replicas []Replica) map[string]*session {
	live := make(map[string]*session, len(replicas))
	draining := make(map[string]bool, len(replicas))
	for _, r := range replicas {
		draining[r.Session] = r.Draining
	}
	newest := newest(t)
	for _, m := range t.Sessions {
		if drains, lives := draining[m.Session]; lives {
			live[m.Session] = &session{Member: m, capacity: int64(max(1, m.Capacity)), draining: drains, newest: m.Revision == newest}
		}
	}
	return live
}

// newest returns the revision that appeared last. That a replica of an older one has started again does not count.
func newest(t *Table) string {
	var last string
	seen := map[string]bool{}
	for _, m := range t.Sessions {
		if !seen[m.Revision] {
			seen[m.Revision], last = true, m.Revision
		}
	}
	return last
}

// balances tells whether what is owned may move for the sake of balance.
func (in *Input) balances(t *Table) bool {
	return !in.Settling && (in.Stalled || !mixed(sessions(t, in.Replicas)))
}

// mixed tells whether several revisions live.
func mixed(live map[string]*session) bool {
	revisions := map[string]bool{}
	for _, s := range live {
		revisions[s.Revision] = true
	}
	return len(revisions) > 1
}

// layOut finds out what each session has of the buckets of a weight, and which of these need another owner.
func (p *plan) layOut(weight []int64) {
	p.weight, p.total, p.moving, p.takers, p.homeless = weight, 0, 0, nil, nil
	for _, m := range p.table.Sessions {
		if s := p.sessions[m.Session]; s != nil {
			s.load, s.buckets = 0, nil
			if !s.draining {
				p.takers = append(p.takers, s)
			}
		}
	}
	for b := range p.table.Owner {
		if weight[b] > 0 {
			p.lay(b)
		}
	}
}

// lay adds a bucket to what its owner has, or to what needs another one. A bucket of an owner that is not live stays: it will be
// unowned when that is buried.
func (p *plan) lay(b int) {
	owner, w := p.table.Owner[b], p.weight[b]
	from := p.sessions[owner]
	if owner == "" {
		p.homeless = append(p.homeless, stray{b, Unowned})
		return
	}
	if from == nil {
		return
	}
	if to, moving := p.table.Moving[b]; moving {
		if target := p.sessions[to]; target != nil && !target.draining {
			target.load += w
			p.total += w
			p.moving += w
			return
		}
		p.cancel(b)
	}
	if from.draining {
		p.homeless = append(p.homeless, stray{b, Draining})
		return
	}
	from.load += w
	p.total += w
	if !p.in.Keep[b] {
		from.buckets = append(from.buckets, b)
	}
}

// place gives what is homeless to the least loaded, the heaviest first.
func (p *plan) place() {
	if len(p.takers) == 0 {
		return
	}
	slices.SortStableFunc(p.homeless, func(a, b stray) int { return cmp.Compare(p.weight[b.bucket], p.weight[a.bucket]) })
	for _, s := range p.homeless {
		p.total += p.weight[s.bucket]
	}
	for _, s := range p.homeless {
		to := p.taker(p.weight[s.bucket])
		to.load += p.weight[s.bucket]
		if s.why == Unowned {
			p.claim(s, to)
		} else {
			p.move(s, to)
		}
	}
}

// taker returns the session that has the least load after it was given more: one of the newest revision, unless all of these
// would have more than twice their share.
func (p *plan) taker(more int64) *session {
	var least, newest *session
	var capacity int64
	for _, s := range p.takers {
		capacity += s.capacity
		if least == nil || s.after(more, least) {
			least = s
		}
		if s.newest && (newest == nil || s.after(more, newest)) {
			newest = s
		}
	}
	if newest != nil && (newest.load+more)*capacity <= 2*p.total*newest.capacity {
		return newest
	}
	return least
}

// after tells whether s would have less load than other, for its capacity, if it was given more.
func (s *session) after(more int64, other *session) bool {
	return (s.load+more)*other.capacity < (other.load+more)*s.capacity
}

func (p *plan) claim(s stray, to *session) {
	p.do(Step{Do: Claimed, Bucket: s.bucket, To: to.Session, Why: s.why}, p.table.Claim(s.bucket, to.Session))
}

func (p *plan) move(s stray, to *session) {
	step := Step{Do: Moved, Bucket: s.bucket, From: p.table.Owner[s.bucket], To: to.Session, Why: s.why}
	p.do(step, p.table.Move(s.bucket, to.Session))
}

func (p *plan) cancel(b int) {
	step := Step{Do: Cancelled, Bucket: b, From: p.table.Owner[b], Why: TargetLost}
	p.do(step, p.table.Cancel(b))
}

// do records a step that the table allowed.
func (p *plan) do(step Step, err error) {
	if err != nil {
		panic("protocol: a plan has a step that is not allowed: " + err.Error())
	}
	p.steps = append(p.steps, step)
}
