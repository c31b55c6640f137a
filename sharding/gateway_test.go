package sharding

import (
	"net/http"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// TestNoSessionIsOverForAGatewaysPage: neither its Lease nor the table is gone.
func TestNoSessionIsOverForAGatewaysPage(t *testing.T) {
	t.Parallel()
	r, s, f := openedBy(t)
	s.patient()
	f.all(mislead)
	s.renew(t.Context())
	if err := s.over(); err != nil {
		t.Errorf("its renewal was answered with a page: %v", err)
	}
	if err := r.knowTable(t.Context(), s); err == nil || s.over() != nil {
		t.Errorf("the table was answered with a page: %v, %v", err, s.over())
	}
	if err := s.end(t.Context()); err == nil {
		t.Error("its Lease is said to be deleted")
	}
}

// TestNoReplicaIsDeadForAGatewaysPage: what it owns would get a second owner.
func TestNoReplicaIsDeadForAGatewaysPage(t *testing.T) {
	t.Parallel()
	r, s, f := openedBy(t)
	s.patient()
	before := s.lease.DeepCopy()
	s.renew(t.Context())
	f.set(func(req *http.Request) fault {
		if req.Method == http.MethodGet {
			return mislead
		}
		return pass
	})
	was := &protocol.Table{Sessions: []protocol.Member{{Session: s.name}}}
	now := r.clock.now()
	heard := instant{mono: now.mono - 2*longestLease, wall: now.wall}
	turn := &turn{Replica: r, s: s, now: now, was: was, peers: map[string]*peer{s.name: {lease: before, gone: true, heard: heard}}}
	if dead, err := turn.isDead(t.Context(), s.name); dead || err == nil {
		t.Errorf("that its Lease is gone is answered with a page: dead %t, %v", dead, err)
	}
	if dead, err := turn.fence(t.Context(), s.name, &peer{lease: before, heard: heard}); dead || err == nil {
		t.Errorf("it is renewed while it is fenced, and that is answered with a page: dead %t, %v", dead, err)
	}
}
