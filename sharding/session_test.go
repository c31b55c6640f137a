package sharding

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// opened returns a session whose Lease is there, and what stands before its API server. Nothing renews it but the test.
func opened(t *testing.T) (*session, *faults, line) {
	t.Helper()
	r, s, f := openedBy(t)
	return s, f, r.hub.writing
}

// openedBy is opened with the replica whose session it is.
func openedBy(t *testing.T) (*Replica, *session, *faults) {
	t.Helper()
	cp := pool.Share(t, mctest.Options{})
	config := cp.Config()
	f := &faults{}
	config.WrapTransport = f.wrap
	c := systemClock{time.Now()}
	r, err := newReplica(Options{ID: "test", Name: "a", Namespace: cp.CreateNamespace(t), Logger: testr.New(t)}, c)
	if err != nil {
		t.Fatal(err)
	}
	if r.hub, err = newHub(config, r.opts.Namespace, c, r.times.try); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.hub.close)
	s := r.newSession()
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, s, f
}

// patient gives a session all the time that there is, so that a busy machine is not taken for an API server that is silent.
func (s *session) patient() {
	s.times = timesOf(longestLease)
	s.line.try = s.times.try
}

func onPut(what fault) func(*http.Request) fault {
	return func(req *http.Request) fault {
		if req.Method == http.MethodPut {
			return what
		}
		return pass
	}
}

// Leases are made by updates too. One that names the UID, as ours do, makes none.
func TestAnUpdateDoesNotBringALeaseBack(t *testing.T) {
	t.Parallel()
	s, _, l := opened(t)
	late := s.next()
	if err := s.end(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Update(t.Context(), late, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of a deleted Lease: %v, want a conflict", err)
	}
	if lease, err := l.Get(t.Context(), late.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("there is a Lease again: %v, %v", lease, err)
	}
}

func TestARenewalWhoseAnswerWasLostCountsOnceItIsSeen(t *testing.T) {
	t.Parallel()
	s, f, _ := opened(t)
	first := *s.sent.Load()
	f.set(onPut(lose))
	s.renew(t.Context())
	if *s.sent.Load() != first {
		t.Fatal("a renewal counts of which nobody knows that it has worked")
	}
	before := s.sentAt[s.number]
	f.set(onPut(pass))
	s.renew(t.Context()) // is refused: the version is another
	if err := s.over(); err != nil {
		t.Fatalf("the session is lost by its own renewal: %v", err)
	}
	if got := *s.sent.Load(); got != before {
		t.Errorf("the session is valid from %v, want from before the renewal that came through was sent, %v", got, before)
	}
	if s.renew(t.Context()); s.sent.Load().mono <= before.mono {
		t.Error("the next renewal does not work")
	}
}

func TestASessionOutlivesThatOthersWriteToItsLease(t *testing.T) {
	t.Parallel()
	s, _, l := opened(t)
	lease, err := l.Get(t.Context(), s.described.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Annotations, lease.Labels = map[string]string{"somebody": "was here"}, nil
	if _, err := l.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := s.sent.Load().mono
	if pause := s.renew(t.Context()); pause > s.times.step {
		t.Errorf("the next attempt is after %s, want it soon: the Lease was not renewed", pause)
	}
	s.renew(t.Context())
	if s.over() != nil || s.sent.Load().mono <= before {
		t.Errorf("the session is not renewed any more: %v", s.over())
	}
	lease, err = l.Get(t.Context(), s.described.Name, metav1.GetOptions{})
	if err != nil || lease.Labels[labelSharding] != "test" || numberOf(lease) != s.number {
		t.Errorf("the Lease is not as it was: %v, %v", lease, err)
	}
}

func TestASessionIsLostOnceItsLeaseIsAnothersOrGone(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(ctx context.Context, l line, lease *coordinationv1.Lease) error{
		"Fenced": func(ctx context.Context, l line, lease *coordinationv1.Lease) error {
			lease.Spec.HolderIdentity = new("")
			_, err := l.Update(ctx, lease, metav1.UpdateOptions{})
			return err
		},
		"TakenOver": func(ctx context.Context, l line, lease *coordinationv1.Lease) error {
			lease.Spec.HolderIdentity = new("somebody")
			_, err := l.Update(ctx, lease, metav1.UpdateOptions{})
			return err
		},
		"Deleted": func(ctx context.Context, l line, lease *coordinationv1.Lease) error {
			return l.Delete(ctx, lease.Name, metav1.DeleteOptions{})
		},
		"MadeAnew": func(ctx context.Context, l line, lease *coordinationv1.Lease) error {
			if err := l.Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			lease.UID, lease.ResourceVersion = "", ""
			_, err := l.Create(ctx, lease, metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, l := opened(t)
			lease, err := l.Get(t.Context(), s.described.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(t.Context(), l, lease); err != nil {
				t.Fatal(err)
			}
			if s.remaining() <= 0 {
				t.Skip("the machine is so busy that the session has lapsed")
			}
			told := 0
			s.told = func() { told++ }
			s.renew(t.Context())
			if s.over() == nil || s.remaining() > 0 {
				t.Errorf("the session is not over: %v, valid for %s", s.over(), s.remaining())
			}
			if s.lose(errLate); told != 1 {
				t.Errorf("the replica is told %d times, want once", told)
			}
			s.run(t.Context()) // returns
		})
	}
}

func TestASessionThatWasCreatedWithoutAnAnswerIsFoundAgain(t *testing.T) {
	t.Parallel()
	s, f, _ := opened(t)
	again := &session{
		name: "b-12345678", line: s.line, clock: s.clock, times: s.times, log: s.log, told: func() {}, hurry: newSignal(),
		sentAt: map[int64]instant{}, described: s.described.DeepCopy(),
	}
	again.described.Name = "test.s." + again.name
	again.described.Spec.HolderIdentity = new(again.name)
	f.all(lose)
	begin := again.clock.now()
	if err := again.open(t.Context()); err == nil {
		t.Fatal("no error although there was no answer")
	}
	f.all(pass)
	if err := again.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent := again.sent.Load(); sent == nil || sent.mono < begin.mono || *sent != again.sentAt[1] {
		t.Errorf("the session is valid from %v, want from before the first attempt", sent)
	}
	if again.renew(t.Context()); again.over() != nil {
		t.Errorf("the session cannot be renewed: %v", again.over())
	}
}

func TestARenewalThatComesLateDoesNotCountForMore(t *testing.T) {
	t.Parallel()
	s, f, l := opened(t)
	f.set(onPut(delay))
	s.renew(t.Context()) // under way
	f.set(onPut(pass))   // arrives now, beside the next
	s.renew(t.Context())
	s.renew(t.Context())
	if s.over() != nil {
		t.Fatal(s.over())
	}
	lease, err := l.Get(t.Context(), s.described.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if sent, known := s.sentAt[numberOf(lease)]; !known || *s.sent.Load() != sent {
		t.Errorf("the session is valid from %v, and the Lease has the renewal of %v", s.sent.Load(), sent)
	}
}

// The Lease was created, of which the session never heard. It was silent, so others have fenced it, deleted the Lease, and given away
// what it owned: the same session must not begin once more, whether it hears of that at once or not.
func TestASessionThatIsCreatedOnceMoreTooLateIsLost(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string][]fault{"Heard": {pass}, "NotHeard": {lose, pass}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f, l := opened(t)
			s.times = timesOf(longestLease)
			s.line.try = s.times.try
			c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
			late := &session{
				name: "b-12345678", line: s.line, clock: c, times: s.times, log: s.log, told: func() {}, hurry: newSignal(),
				sentAt: map[int64]instant{}, described: s.described.DeepCopy(),
			}
			late.described.Name = "test.s." + late.name
			late.described.Spec.HolderIdentity = new(late.name)
			f.all(lose)
			if err := late.open(t.Context()); err == nil {
				t.Fatal("no error although there was no answer")
			}
			f.all(pass)
			if err := l.Delete(t.Context(), late.described.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			c.pass(s.times.lease, s.times.lease)
			for _, answer := range answers {
				f.all(answer)
				_ = late.open(t.Context())
			}
			if late.over() == nil || late.remaining() > 0 {
				t.Errorf("a session begins that others may have fenced: valid for %s", late.remaining())
			}
			if _, err := l.Get(t.Context(), late.described.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("its Lease is left: %v", err)
			}
		})
	}
}

func TestASessionIsRenewedInTimeAndKeepsNoOldRenewals(t *testing.T) {
	t.Parallel()
	s, f, _ := opened(t)
	s.patient()
	for range 5 {
		if pause := s.renew(t.Context()); pause <= 0 || pause > s.times.renew {
			t.Fatalf("the next renewal is after %s, want after at most %s", pause, s.times.renew)
		}
	}
	if n := len(s.sentAt); n != 1 {
		t.Errorf("%d renewals are remembered, want the one that counts", n)
	}
	f.set(onPut(refuse))
	if pause := s.renew(t.Context()); pause > s.times.step {
		t.Errorf("after a failure, the next attempt is after %s, want after at most %s", pause, s.times.step)
	}
}

func TestTheReplicaIsToldThatItsSessionIsSuspendedNoMore(t *testing.T) {
	t.Parallel()
	c := &manual{at: instant{mono: time.Hour, wall: time.Now().Round(0)}}
	told := 0
	s := &session{clock: c, times: timesOf(15 * time.Second), told: func() { told++ }, sentAt: map[int64]instant{1: c.now()}}
	s.worked(1)
	s.sentAt[2] = c.now()
	if s.worked(2); told != 1 {
		t.Errorf("told %d times, want once, when it began", told)
	}
	c.pass(s.times.valid, s.times.valid) // and not a moment more
	s.sentAt[3] = c.now()
	if s.worked(3); told != 2 {
		t.Errorf("told %d times, want twice: it was suspended", told)
	}
}

// A stranger has a Lease of this name, which says that it is held by this session.
func TestASessionDoesNotBeginWithTheLeaseOfAStranger(t *testing.T) {
	t.Parallel()
	s, _, l := opened(t)
	s.patient()
	lease := s.described.DeepCopy()
	lease.Name = "test.s.b-12345678"
	lease.Spec.HolderIdentity = new("b-12345678")
	lease.Annotations[annotationRenewal] = "99"
	if _, err := l.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.name, s.lease, s.described = "b-12345678", nil, lease.DeepCopy()
	if err := s.open(t.Context()); err == nil || s.over() == nil {
		t.Errorf("the session begins: %v", err)
	}
}

func TestASessionThatIsAboutToEndSaysSo(t *testing.T) {
	t.Parallel()
	s, _, l := opened(t)
	s.patient()
	s.draining.Store(true)
	s.renew(t.Context())
	lease, err := l.Get(t.Context(), s.described.Name, metav1.GetOptions{})
	if err != nil || !(&peer{lease: lease}).draining() {
		t.Errorf("the Lease does not say it: %v, %v", lease.Annotations, err)
	}
}
