package sharding

import (
	"fmt"
	"runtime/debug"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// differAtMost is for how many times the duration of a Lease sessions may differ as if they were of several fleets: while a replica
// starts, it does not know its members yet.
const differAtMost = 4

// kin compares what sessions of one table say of their fleet. Two fleets by mistake would share their members with one another, and each
// would leave those alone that only the other one knows. The replica's lock guards it.
type kin struct {
	program string        // what this replica runs, empty if that is not known
	changed bool          // members have, since the sample was taken
	next    time.Duration // by the monotonic clock, when to look again
	patient time.Duration // for how long a session may differ
	sample  protocol.Sample
	text    string
	doubts  map[string]doubt // by session
}

// doubt is why a session seems to be of another fleet.
type doubt struct {
	why   string
	since instant
	told  bool
}

// programPath returns which program this is, empty if that is not known. It is the same for all versions of it, unless the module or
// the main package is renamed.
func programPath() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Path == "command-line-arguments" { // it was built from a list of files
		return ""
	}
	return info.Path
}

// compare says which members this replica knows, with the next renewal of the session, and looks whether the others know the same. It
// returns when to look again.
func (r *Replica) compare(s *session) time.Duration {
	again, table, strange := r.compared(s)
	for session, why := range strange {
		r.log.Info("A replica with this ID seems to be of another fleet; give each fleet an ID of its own", "replica", session, "why", why)
		r.event.ofAnotherFleet(table, session, s.name, why)
	}
	return again
}

// compared returns also which sessions have just been found to be of another fleet, and why.
func (r *Replica) compared(s *session) (again time.Duration, table *coordinationv1.Lease, strange map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.now()
	if left := r.kin.next - now.mono; left > 0 || r.table.content == nil {
		return max(left, r.times.step), nil, nil
	}
	r.kin.next = now.mono + r.times.renew
	if r.kin.changed {
		r.kin.changed = false
		r.kin.sample = protocol.NewSample(r.hashesLocked)
		r.kin.text = r.kin.sample.Encode()
	}
	text := r.kin.text
	s.members.Store(&text)
	strange = map[string]string{}
	doubts := make(map[string]doubt, len(r.kin.doubts))
	for _, m := range r.table.content.Sessions {
		p := r.peers[m.Session]
		if m.Session == s.name || !r.livesAt(now, m.Session, p) {
			continue
		}
		d, known := r.kin.doubts[m.Session]
		if d.why = r.kin.differs(p); d.why == "" {
			continue
		}
		if !known {
			d.since = now
		}
		if !d.told && now.since(d.since) > r.kin.patient {
			d.told = true
			strange[m.Session] = d.why
		}
		doubts[m.Session] = d
	}
	r.kin.doubts = doubts
	return r.times.renew, r.table.lease, strange
}

// hashesLocked has the members of all pools. The local cluster is none.
func (r *Replica) hashesLocked(yield func(uint32) bool) {
	for name, m := range r.members {
		if name != "" && !m.forgotten && !yield(protocol.HashMember(string(name), m.key, m.pool)) {
			return
		}
	}
}

// differs says why a session seems to be of another fleet. Nothing follows from what it does not say, or says in another way.
func (k *kin) differs(p *peer) string {
	if program := p.lease.Annotations[annotationProgram]; program != "" && k.program != "" && program != k.program {
		return oneline.Text(fmt.Sprintf("it runs the program %s, and this one %s", program, k.program), maxError)
	}
	sample, err := protocol.DecodeSample(p.lease.Annotations[annotationMembers])
	if err != nil || len(sample) == 0 || len(k.sample) == 0 {
		return ""
	}
	if both, of := k.sample.Compare(sample); 2*both < of {
		return fmt.Sprintf("of a sample of %d members, it and this one both know %d", of, both)
	}
	return ""
}

// of returns why a session seems to be of another fleet, empty if it does not, or not for long.
func (k *kin) of(session string) string {
	if d := k.doubts[session]; d.told {
		return d.why
	}
	return ""
}
