package members

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// shown is what this replica remembers of the Members.
type shown struct {
	mu     sync.Mutex // guards what follows
	of     map[string]*record
	keeper time.Time // since when this replica looks after the Members that are no other's, zero if it does not
	failed string    // why the last write did not work
	// strangers are those Members that never were a member's and say so, or are about to. There are at most mostStrangers.
	strangers map[string]bool
	crowded   bool // whether there was one more
}

// mostStrangers is how many Members are told that they are no member's. Whoever creates more of them makes the replica neither write
// nor remember more.
const mostStrangers = 500

// admit reports whether a Member that never was a member's is one of those that are told so, and whether it is the first that is not.
func (s *shown) admit(object string) (is, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.strangers[object] {
		return true, false
	}
	if len(s.strangers) >= mostStrangers {
		first = !s.crowded
		s.crowded = true
		return false, first
	}
	s.strangers[object] = true
	return true, false
}

// record is what is remembered of one Member.
type record struct {
	cluster fleet.ClusterName
	is      bool // a member of the fleet
	gone    bool // it was one since this replica has started
	written time.Time
	// awaited is the status that was written, until the watch brings it; nil then. It is not changed once it is sent.
	awaited *v1alpha1.Status
	// brought is the status that was written, once the watch has brought it; nil if another one is there. It is not changed.
	brought *v1alpha1.Status
}

func (s *shown) recordLocked(object string) *record {
	r := s.of[object]
	if r == nil {
		r = &record{}
		s.of[object] = r
	}
	return r
}

// joined notes whether a cluster is a member.
func (s *shown) joined(object string, cluster fleet.ClusterName, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recordLocked(object)
	r.cluster, r.gone, r.is = cluster, !is, is
	delete(s.strangers, object)
}

// clusterOf returns the member whose Member it is, if it is one.
func (s *shown) clusterOf(object string) (fleet.ClusterName, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[object]
	if r == nil {
		return "", false
	}
	return r.cluster, r.is
}

func (s *shown) isGone(object string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[object]
	return r != nil && r.gone
}

// all returns the names of the Members that are to be.
func (s *shown) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]string, 0, len(s.of))
	for object := range s.of {
		all = append(all, object)
	}
	return all
}

// forget forgets a Member that is not there, and is not to be. It returns how long to wait for that: the watch may still bring one that was
// written, which nothing else may tell from one that never was a member's.
func (s *shown) forget(object string) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.strangers, object)
	r := s.of[object]
	if r == nil || r.is {
		return 0
	}
	if wait = awaitFor - time.Since(r.written); wait <= 0 {
		delete(s.of, object)
	}
	return max(0, wait)
}

// keep notes whether this replica is the keeper, and returns whether it has become so.
func (s *shown) keep(keeps bool) (begins bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !keeps:
		s.keeper = time.Time{}
	case s.keeper.IsZero():
		s.keeper = time.Now()
		return true
	}
	return false
}

func (s *shown) keeps() bool { return s.keptFor() > 0 }

// keptFor returns for how long this replica has been the keeper, zero if it is not.
func (s *shown) keptFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper.IsZero() {
		return 0
	}
	return max(1, time.Since(s.keeper))
}

// mayWrite returns how long a Member is to be left alone, so that it is written once a second at most.
func (s *shown) mayWrite(object string) (after time.Duration) {
	const pause = time.Second
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[object]; r != nil {
		return max(0, pause-time.Since(r.written))
	}
	return 0
}

// awaitFor is how long the watch may take to bring what was written.
const awaitFor = 5 * time.Second

// awaits returns the status that was written and that the watch has not brought yet, and for how long that is to be awaited, or nil.
func (s *shown) awaits(object string) (status *v1alpha1.Status, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[object]
	if r == nil || r.awaited == nil {
		return nil, 0
	}
	if wait = awaitFor - time.Since(r.written); wait <= 0 {
		return nil, 0
	}
	return r.awaited, wait
}

// writing notes that a status is about to be written.
func (s *shown) writing(object string, status *v1alpha1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordLocked(object).awaited = status
}

// wrote notes the end of a write, with its error.
func (s *shown) wrote(object string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recordLocked(object)
	if r.written = time.Now(); err != nil {
		r.awaited = nil
	}
}

// seen notes what the watch has brought of a Member, nil if it was deleted.
func (s *shown) seen(object string, now *v1alpha1.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[object]
	switch {
	case r == nil:
	case now == nil:
		r.awaited, r.brought = nil, nil
	case r.awaited == nil:
		if b := r.brought; b != nil && (b.Replica != now.Status.Replica || b.Epoch != now.Status.Epoch) {
			r.brought = nil // another replica may have written it
		}
	case same(&now.Status, r.awaited):
		r.awaited, r.brought = nil, asStored(r.awaited)
	}
}

// forged returns the status that this replica wrote last, if what is there now differs and no other replica has written it. Else it returns nil.
func (s *shown) forged(known *v1alpha1.Member) (written *v1alpha1.Status) {
	if known == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[known.Name]
	if r == nil || r.awaited != nil || r.brought == nil || equality.Semantic.DeepEqual(r.brought, &known.Status) {
		return nil
	}
	return r.brought
}

// failing notes why a write did not work, empty if it did, and returns whether that is news.
func (s *shown) failing(reason string) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = s.failed != reason
	s.failed = reason
	return news
}
