package sharding

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is what a replica does.
type State string

const (
	// Joining replicas have no session yet, or are not in the table yet.
	Joining State = "Joining"
	// Active replicas work on what they own.
	Active State = "Active"
	// Suspended replicas cannot renew their session. They send nothing to members until they can.
	Suspended State = "Suspended"
	// Leaving replicas are about to end, and give up what they own.
	Leaving State = "Leaving"
)

// Status is what a replica knows at one moment of who owns what.
type Status struct {
	ID   string `json:"id"`
	Pool string `json:"pool,omitempty"`
	// Replica and Session are this replica's names. Each start of a replica has another session.
	Replica string `json:"replica"`
	Session string `json:"session,omitempty"`
	State   State  `json:"state"`
	// Problem says why nothing can be decided now.
	Problem string `json:"problem,omitempty"`
	// ValidSeconds is for how long the session is valid unless it is renewed.
	ValidSeconds float64 `json:"validSeconds"`
	// SuspendedSince is when the session lapsed, of a replica that is Suspended.
	SuspendedSince time.Time `json:"suspendedSince,omitzero"`
	// Generation counts the writes of the table.
	Generation int64 `json:"generation"`
	Buckets    int   `json:"buckets"`
	// Replicas are the sessions in the table, in order of joining.
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	// Moves are the hand-overs under way, by who gives up and who takes.
	Moves []Move `json:"moves,omitempty"`
	// MembersWithoutOwner is how many of this pool's members no replica owns, or one whose session is silent, and how many
	// belong to pools of which no replica is live. The local cluster counts too, which is of the pool without a name.
	MembersWithoutOwner int `json:"membersWithoutOwner"`
	// MaxOverMean is what the replica with the most weight has, over the mean: 1 is perfect, and up to 1.1 is left alone. With
	// capacities, weights are those for each unit of it.
	MaxOverMean float64 `json:"maxOverMean"`
}

// ReplicaStatus is what is known of one session.
type ReplicaStatus struct {
	Session  string `json:"session"`
	Replica  string `json:"replica"`
	Revision string `json:"revision,omitempty"`
	Capacity int    `json:"capacity"`
	// Live is false if the session was fenced, was silent for too long, or has no Lease.
	Live          bool    `json:"live"`
	Draining      bool    `json:"draining,omitempty"`
	SilentSeconds float64 `json:"silentSeconds"`
	// Buckets, Members and Weight are what it owns, with what it is giving up.
	// A weight of 1 is that of the label's value 1, and of the average member where costs are measured.
	Buckets int     `json:"buckets"`
	Members int     `json:"members"`
	Weight  float64 `json:"weight"`
	// Measured is of how many of its buckets the session says what they cost. The others count as average.
	Measured int `json:"measured,omitempty"`
	// StrangeCosts is of how many buckets the session says that too, though it does not own them. It is ignored, and usual for a
	// minute after a hand-over.
	StrangeCosts int `json:"strangeCosts,omitempty"`
	// AnotherFleet says why the session seems to be of another fleet, which was given the same ID. Members that only one of them knows
	// may have no reconciles then. It is said after four times the duration of a Lease.
	AnotherFleet string `json:"anotherFleet,omitempty"`
	// CostProblem says why nothing can be made of what the session says of costs.
	CostProblem string `json:"costProblem,omitempty"`
}

// Move is what one session gives up to another.
type Move struct {
	From    string    `json:"from"`
	To      string    `json:"to"`
	Buckets int       `json:"buckets"`
	Members int       `json:"members"`
	Since   time.Time `json:"since"`
}

// Status returns what this replica knows now. It waits for nothing.
func (r *Replica) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := Status{
		ID: r.opts.ID, Pool: r.opts.Pool, Replica: r.opts.Name, State: Joining, Problem: r.problem, SuspendedSince: r.suspendedSince,
	}
	if s := r.session; s != nil {
		status.Session = s.name
		remaining := s.remaining()
		status.ValidSeconds = max(0, remaining.Seconds())
		status.State = r.stateLocked(s, remaining)
	}
	if r.table.content != nil {
		r.addTableLocked(&status)
	}
	status.MembersWithoutOwner += r.desertedLocked()
	return status
}

// Lease names the Lease of the session, which fleet.Fleet.Lease returns. It has no name before the first session.
func (r *Replica) Lease() types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: r.opts.Namespace, Name: r.opts.leaseName(r.session.name)}
}

// desertedLocked returns how many members belong to other pools of which no replica is live.
func (r *Replica) desertedLocked() (members int) {
	if len(r.pools) == 0 {
		return 0
	}
	live, now := map[string]bool{}, r.clock.now()
	for session, p := range r.elsewhere {
		if r.livesAt(now, session, p) {
			live[p.lease.Annotations[annotationPool]] = true
		}
	}
	for pool, n := range r.pools {
		if !live[pool] {
			members += n
		}
	}
	return members
}

func (r *Replica) stateLocked(s *session, remaining time.Duration) State {
	switch {
	case s.over() != nil:
		return Joining
	case s.draining.Load():
		return Leaving
	case s.sent.Load() != nil && remaining <= 0:
		return Suspended
	case r.table.content == nil || !r.table.content.Has(s.name):
		return Joining
	default:
		return Active
	}
}

func (r *Replica) addTableLocked(status *Status) {
	t, now := r.table.content, r.clock.now()
	status.Generation, status.Buckets = t.Gen, t.Buckets()
	index := make(map[string]int, len(t.Sessions))
	for i, m := range t.Sessions {
		index[m.Session] = i
		one := ReplicaStatus{Session: m.Session, Replica: replicaOf(m.Session), Revision: m.Revision, Capacity: max(1, m.Capacity)}
		if p := r.peers[m.Session]; p != nil {
			one.Live, one.Draining, one.SilentSeconds = r.livesAt(now, m.Session, p), p.draining(), now.since(p.heard).Seconds()
		}
		one.AnotherFleet = r.kin.of(m.Session)
		r.addCostsLocked(&one)
		status.Replicas = append(status.Replicas, one)
	}
	moves := map[[2]string]*Move{}
	weights, unit := r.weightsLocked()
	for b, owner := range t.Owner {
		i, owned := index[owner]
		if !owned || !status.Replicas[i].Live {
			status.MembersWithoutOwner += r.buckets[b].members + r.buckets[b].local
		}
		if !owned {
			continue
		}
		of := &status.Replicas[i]
		of.Buckets++
		of.Members += r.buckets[b].members
		of.Weight += float64(weights[b])
		if to, moving := t.Moving[b]; moving {
			addMove(moves, owner, to, r.buckets[b].members, now.wall.Add(-now.since(r.table.moves[b])))
		}
	}
	for i := range status.Replicas {
		status.Replicas[i].Weight /= unit
	}
	for _, m := range moves {
		status.Moves = append(status.Moves, *m)
	}
	slices.SortFunc(status.Moves, func(a, b Move) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	status.MaxOverMean = maxOverMean(status.Replicas)
}

func addMove(moves map[[2]string]*Move, from, to string, members int, since time.Time) {
	m := moves[[2]string{from, to}]
	if m == nil {
		m = &Move{From: from, To: to, Since: since}
		moves[[2]string{from, to}] = m
	}
	m.Buckets++
	m.Members += members
	if since.Before(m.Since) {
		m.Since = since
	}
}

// maxOverMean is 1 if nobody owns anything that weighs.
func maxOverMean(replicas []ReplicaStatus) float64 {
	var most, weight, capacity float64
	for _, one := range replicas {
		if one.Live && !one.Draining {
			most = max(most, one.Weight/float64(one.Capacity))
			weight += one.Weight
			capacity += float64(one.Capacity)
		}
	}
	if weight == 0 {
		return 1
	}
	return most / (weight / capacity)
}
