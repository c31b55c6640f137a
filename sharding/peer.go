package sharding

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
)

// peer is a session as this replica sees it, its own included.
type peer struct {
	lease *coordinationv1.Lease // as last seen, nil if it never was
	gone  bool                  // the Lease is not there, or was not seen yet
	// heard is when the session was last seen to be renewed, or when this replica looked first.
	heard instant
}

// fenced reports whether the session cannot be renewed any more.
func (p *peer) fenced(session string) bool {
	return p.gone || protocol.Fenced(session, true, holderOf(p.lease))
}

func (p *peer) draining() bool {
	return p.lease != nil && p.lease.Annotations[annotationDraining] == "true"
}

// silentAfter is how long the session may be silent: what it said itself, if that is longer than what this replica thinks.
func (p *peer) silentAfter(lease time.Duration) time.Duration {
	if p.lease == nil {
		return lease
	}
	own := time.Duration(ptr.Deref(p.lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return min(longestLease, max(lease, own))
}

// judge returns what others do about the session, once each has waited for those before it.
func (p *peer) judge(session string, now instant, lease, wait time.Duration) (verdict protocol.Verdict, left time.Duration) {
	left = p.silentAfter(lease) + wait - now.since(p.heard)
	holder := ""
	if !p.gone {
		holder = holderOf(p.lease)
	}
	return protocol.Judge(session, !p.gone, holder, left <= 0), left
}

// livesAt reports whether a session seems to live.
func (r *Replica) livesAt(now instant, session string, p *peer) bool {
	return p != nil && !p.fenced(session) && now.since(p.heard) < p.silentAfter(r.times.lease)
}
