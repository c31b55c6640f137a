package access

import (
	"sync"
	"time"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// reports passes on what the engine reports, and reports a member again when its token is another, which changes when its
// credentials expire. It has the sources of the tokens. It implements [fleet.Members].
type reports struct {
	fleet.Members

	mu       sync.Mutex // guards reported; methods of the members, which never wait, are called under it, and may load a config
	reported map[fleet.ClusterName]report

	sources sync.Mutex // guards used, which loading a config needs
	used    map[fleet.ClusterName]used
}

// used is the source of a member's tokens.
type used struct {
	source   *access.Source
	revision string
}

// report is what was last reported of a member.
type report struct {
	member  fleet.Member
	leaving bool
}

func newReports(members fleet.Members) *reports {
	return &reports{Members: members, used: map[fleet.ClusterName]used{}, reported: map[fleet.ClusterName]report{}}
}

var _ fleet.Members = (*reports)(nil)

// use returns the source of a member's tokens: that of before, while the revision is the same, or one that is made now.
func (r *reports) use(
	name fleet.ClusterName, revision string, create func(renewed func()) *access.Source,
) *access.Source {
	r.sources.Lock()
	defer r.sources.Unlock()
	if u, ok := r.used[name]; ok && u.revision == revision {
		return u.source
	}
	source := create(func() { r.renewed(name, revision) })
	r.used[name] = used{source, revision}
	return source
}

// source returns the source of a member's tokens, nil if there is none.
func (r *reports) source(name fleet.ClusterName) *access.Source {
	if r == nil {
		return nil
	}
	r.sources.Lock()
	defer r.sources.Unlock()
	return r.used[name].source
}

// forget forgets the source of a member's tokens. An engagement that ends goes on with what it has.
func (r *reports) forget(name fleet.ClusterName) {
	r.sources.Lock()
	defer r.sources.Unlock()
	delete(r.used, name)
}

// expires returns when the credentials of a member expire. It is called under mu, right before that is reported: a time that was read
// earlier might be reported after a later one.
func (r *reports) expires(m fleet.Member) time.Time {
	r.sources.Lock()
	u, ok := r.used[m.Name]
	r.sources.Unlock()
	if !ok || u.revision != m.Revision {
		return m.Expires
	}
	return u.source.Expires()
}

// renewed reports when the credentials of a member expire now. What was reported has been taken, so this is too, or the fleet has
// ended.
func (r *reports) renewed(name fleet.ClusterName, revision string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.reported[name]
	if !ok || last.member.Revision != revision {
		return
	}
	last.member.Expires = r.expires(last.member)
	r.reported[name] = last
	if last.leaving {
		_, _ = r.Members.Leave(last.member)
		return
	}
	_ = r.Members.Set(last.member)
}

// Set implements [fleet.Members].
func (r *reports) Set(m fleet.Member) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Expires = r.expires(m)
	err := r.Members.Set(m)
	if err == nil {
		r.reported[m.Name] = report{member: m}
	}
	return err
}

// Leave implements [fleet.Members].
func (r *reports) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.Expires = r.expires(m)
	left, err = r.Members.Leave(m)
	if err == nil {
		r.reported[m.Name] = report{member: m, leaving: true}
	}
	return left, err
}

// Remove implements [fleet.Members].
func (r *reports) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, name)
	return r.Members.Remove(name)
}
