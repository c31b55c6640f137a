package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// maxError is as much of an error as is shown, in bytes.
const maxError = 400

// session is one start of a replica, as others see it: a Lease of a name that never comes back. Its methods renew, open and end are
// called by one goroutine at a time, the others at any time.
type session struct {
	name  string
	line  line
	clock clock
	times times
	log   logr.Logger
	// told is called after the session was lost, and after a renewal that ended a suspension.
	told func()

	sent     atomic.Pointer[instant] // just before the last renewal was sent that is known to have worked; nil before
	lost     atomic.Pointer[ending]
	draining atomic.Bool
	hurry    signal                 // to renew now
	costs    atomic.Pointer[string] // what it says of what its buckets cost, nil for nothing
	members  atomic.Pointer[string] // what it says of the members that it knows, nil for nothing

	described *coordinationv1.Lease // what is written, but for what changes with each renewal
	lease     *coordinationv1.Lease // as last read or written, nil before
	number    int64                 // of the last renewal that was sent
	sentAt    map[int64]instant     // of those that may count
	failed    string                // why the last renewal did not work, empty if it did
}

// ending says why something is over.
type ending struct{ err error }

// signal remembers that something has happened, until that is received.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// remaining returns for how long the session is valid. It is not positive if it is suspended or lost.
func (s *session) remaining() time.Duration {
	sent := s.sent.Load()
	if sent == nil || s.lost.Load() != nil {
		return 0
	}
	return s.times.valid - s.clock.now().atMostSince(*sent)
}

// over returns why the session has been lost.
func (s *session) over() error {
	if lost := s.lost.Load(); lost != nil {
		return lost.err
	}
	return nil
}

// lose ends the session for ever.
func (s *session) lose(err error) {
	if s.lost.CompareAndSwap(nil, &ending{err}) {
		s.told()
	}
}

// worked notes that the renewal of this number has worked.
func (s *session) worked(number int64) bool {
	at, ours := s.sentAt[number]
	if !ours {
		return false
	}
	maps.DeleteFunc(s.sentAt, func(n int64, _ instant) bool { return n < number })
	before := s.remaining()
	s.sent.Store(&at)
	if before <= 0 && s.remaining() > 0 {
		s.told()
	}
	return true
}

// errLate is why a session is lost whose Lease was created so late that others may have fenced one of the same name before, and
// deleted it: it would be back, and they know that it is dead.
var errLate = errors.New("creating the session took so long that others may have fenced it meanwhile")

// open creates the Lease. It is called again after an error, unless the session is lost.
func (s *session) open(ctx context.Context) error {
	s.number++
	s.sentAt[s.number] = s.clock.now()
	created, err := ask(ctx, s.line, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return s.line.Create(ctx, s.next(), metav1.CreateOptions{})
	})
	if apierrors.IsAlreadyExists(err) { // the answer to an attempt before was lost
		created, err = s.read(ctx)
	}
	if err != nil {
		return fmt.Errorf("creating the session %s: %w", s.described.Name, err)
	}
	s.lease = created
	if late := s.sentAt[numberOf(created)].atMostSince(s.sentAt[1]); late+s.times.try > s.times.valid {
		s.lose(errLate)
		_ = s.end(ctx) // or others do, later
	}
	if !s.worked(numberOf(created)) && s.over() == nil {
		s.lose(fmt.Errorf("the session %s was lost: its Lease is another's", s.name))
	}
	return s.over()
}

// run renews the Lease until the session is lost, or ctx ends.
func (s *session) run(ctx context.Context) {
	pause := s.times.renew
	for {
		t := timer(s.clock, pause)
		select {
		case <-t.C:
		case <-s.hurry:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil || s.over() != nil {
			return
		}
		if pause = s.renew(ctx); s.over() != nil {
			return
		}
	}
}

// renew renews the Lease once, and returns when it is to be renewed next.
func (s *session) renew(ctx context.Context) time.Duration {
	s.number++
	begin := s.clock.now()
	s.sentAt[s.number] = begin
	renewed, err := ask(ctx, s.line, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return s.line.Update(ctx, s.next(), metav1.UpdateOptions{})
	})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		renewed, err = s.read(ctx)
	}
	if ctx.Err() != nil || s.over() != nil {
		return 0
	}
	s.note(err)
	if err != nil {
		return s.times.step - s.clock.now().since(begin)
	}
	s.lease = renewed
	if !s.worked(numberOf(renewed)) {
		return s.times.step // another has written to it: once more, with what is there now
	}
	return s.times.renew - s.clock.now().since(*s.sent.Load())
}

// read reads the Lease after a renewal was refused, and finds out whether the session is lost.
func (s *session) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := ask(ctx, s.line, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return s.line.Get(ctx, s.described.Name, metav1.GetOptions{})
	})
	switch {
	case s.lease != nil && (notfound.Is(err, s.described.Name) || err == nil && lease.UID != s.lease.UID):
		s.lose(fmt.Errorf("the session %s was lost: its Lease is gone, as other replicas have fenced it while it was silent, or as it was deleted", s.name))
	case err == nil && holderOf(lease) != s.name:
		s.lose(fmt.Errorf("the session %s was lost: another replica has fenced it while it was silent", s.name))
	}
	return lease, err
}

// note logs that renewals have begun to fail, or work again.
func (s *session) note(err error) {
	reason := ""
	if err != nil {
		reason = fleet.ReasonOf(err)
	}
	if reason != s.failed {
		if s.failed = reason; err != nil {
			s.log.Info("Cannot renew the session", "session", s.name, "reason", reason, "error", oneline.Text(err.Error(), maxError))
		} else {
			s.log.Info("The session is renewed again", "session", s.name)
		}
	}
}

// next returns the Lease as it is to be written. Once it was created, it has its UID: an update without one would bring a Lease
// back that was deleted.
func (s *session) next() *coordinationv1.Lease {
	next := s.described.DeepCopy()
	if s.lease != nil {
		next.UID, next.ResourceVersion = s.lease.UID, s.lease.ResourceVersion
	}
	next.Annotations[annotationRenewal] = strconv.FormatInt(s.number, 10)
	if costs := s.costs.Load(); costs != nil {
		next.Annotations[annotationCosts] = *costs
	}
	if members := s.members.Load(); members != nil {
		next.Annotations[annotationMembers] = *members
	}
	if s.draining.Load() {
		next.Annotations[annotationDraining] = "true"
	}
	next.Spec.RenewTime = new(metav1.NewMicroTime(s.clock.now().wall))
	return next
}

// end deletes the Lease, that of this name if nobody told the session that it was created.
func (s *session) end(ctx context.Context) error {
	var options metav1.DeleteOptions
	if s.lease != nil {
		options.Preconditions = metav1.NewUIDPreconditions(string(s.lease.UID))
	}
	_, err := ask(ctx, s.line, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.line.Delete(ctx, s.described.Name, options)
	})
	if notfound.Ignore(err, s.described.Name) != nil {
		return fmt.Errorf("deleting the session %s: %w", s.described.Name, err)
	}
	return nil
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

// numberOf returns the number of the last renewal of a session's Lease, or 0 if it has none.
func numberOf(lease *coordinationv1.Lease) int64 {
	number, err := strconv.ParseInt(lease.Annotations[annotationRenewal], 10, 64)
	if err != nil {
		return 0
	}
	return number
}
