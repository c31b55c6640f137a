package sharding

import (
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// A replica that is alone is not fenced by anybody: it goes on with the same tenures.
func TestAHubThatDoesNotAnswerSuspendsAndCostsNoTenure(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		begin, end func(tb testing.TB, s *scene, a *actor)
	}{
		"Refused": {
			func(_ testing.TB, _ *scene, a *actor) { a.faults.all(refuse) },
			func(_ testing.TB, _ *scene, a *actor) { a.faults.all(pass) },
		},
		"BlackHoled": {
			func(_ testing.TB, _ *scene, a *actor) { a.faults.all(freeze) },
			func(_ testing.TB, _ *scene, a *actor) { a.faults.all(pass) },
		},
		"Hung": {
			func(tb testing.TB, s *scene, _ *actor) { tb.Helper(); s.cp.Freeze(tb) },
			func(tb testing.TB, s *scene, _ *actor) { tb.Helper(); s.cp.Thaw(tb) },
		},
		"Down": {
			func(tb testing.TB, s *scene, _ *actor) { tb.Helper(); s.cp.Stop(tb) },
			func(tb testing.TB, s *scene, _ *actor) { tb.Helper(); s.cp.Restart(tb) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSceneIn(t, pool.Start(t, mctest.Options{}).Local, 10)
			a := s.start("a")
			s.becomesShared(a)
			before, session := a.tenures(), a.session()
			tc.begin(t, s, a)
			stage.Eventually(t, "the replica is suspended", a.isIn(Suspended))
			if held := a.holds(); len(held) > 0 {
				t.Errorf("a suspended replica may write to %v", held)
			}
			tc.end(t, s, a)
			stage.Eventually(t, "it is suspended no more", a.isIn(Active))
			s.becomesShared(a)
			after := a.tenures()
			if a.session() != session || !slices.ContainsFunc(after, func(tenure fleet.Tenure) bool { return tenure == before[0] }) {
				t.Errorf("the session was %s and is %s, and the tenures are others", session, a.session())
			}
			for _, tenure := range before {
				if err := tenure.Over(); err != nil || tenure.Remaining() <= 0 {
					t.Errorf("a tenure is over, %v, or has %s left", err, tenure.Remaining())
				}
			}
		})
	}
}

// TestASuspensionByAClockThatWasSetIsTold, and its end. The clock is set forward by so much that the session is over at once, and something
// else makes the replica look at its clock. If it is set back, the answer to the next renewal finds the session valid, and so is no news.
func TestASuspensionByAClockThatWasSetIsTold(t *testing.T) {
	t.Parallel()
	for end, back := range map[string]time.Duration{"the session is renewed": 0, "the clock is set back": -time.Hour} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 1)
			c := newSkewed(1)
			a := s.startWith("a", c)
			s.becomesShared(a)
			a.faults.all(freeze)
			c.jump(time.Hour)
			a.replica.arm.send()
			stage.Eventually(t, "the suspension is told", func() bool { return !a.replica.Status().SuspendedSince.IsZero() })
			c.jump(back)
			a.faults.all(pass)
			stage.Eventually(t, "its end is told", func() bool { return a.replica.Status().SuspendedSince.IsZero() })
		})
	}
}

func TestAReplicaThatIsFencedWhileSuspendedBeginsAnew(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	before, session := a.tenures(), a.session()
	a.faults.all(freeze)
	stage.Eventually(t, "the other owns all members", func() bool { return len(b.holds()) == 20 })
	for _, tenure := range before {
		if tenure.Remaining() > 0 {
			t.Error("a replica that is fenced may write")
		}
	}
	a.faults.all(pass)
	s.becomesShared(a, b)
	if a.session() == session {
		t.Error("the session that was fenced goes on")
	}
	for _, tenure := range before {
		if tenure.Over() == nil || tenure.Remaining() > 0 {
			t.Errorf("a tenure of the session that was fenced is not over: %v, %s", tenure.Over(), tenure.Remaining())
		}
	}
	stage.Eventually(t, "the Lease of the session that was fenced is gone", func() bool { return len(s.leases()) == 3 })
}

// No write of a replica is answered for a while, though all of them work.
func TestLostAnswersCostNothingButTime(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	every := 0
	a.faults.set(func(req *http.Request) fault {
		if every++; req.Method == http.MethodPut && every%2 == 0 {
			return lose
		}
		return pass
	})
	session := a.session()
	b := s.start("b")
	s.becomesShared(a, b)
	b.stop()
	s.becomesShared(a)
	if a.session() != session {
		t.Error("the session was lost with an answer")
	}
}

func TestAWatchThatStandsStillIsNoticed(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a := s.start("a")
	s.becomesShared(a)
	session := a.session()
	stale := func(req *http.Request) fault {
		if isWatch(req) {
			return freeze
		}
		return pass
	}
	a.faults.set(stale)
	b := s.start("b")
	stage.Eventually(t, "the other replica has joined", b.isIn(Active))
	s.becomesShared(a, b)
	if a.session() != session {
		t.Error("the session was lost with the watch")
	}
}

// The first replica plans, and its write arrives after the second one's.
func TestTwoReplicasThatPlanDoNoHarm(t *testing.T) {
	t.Parallel()
	s := newScene(t, 30)
	a := s.start("a")
	s.becomesShared(a)
	b := s.start("b")
	s.becomesShared(a, b)
	toTable := func(req *http.Request) fault {
		if req.Method == http.MethodPut && req.URL.Path[len(req.URL.Path)-len(tableSuffix):] == tableSuffix {
			return delay
		}
		return pass
	}
	a.faults.set(toTable)
	c := s.start("c")
	// What the first is to give up, it cannot: that moves when its writes arrive.
	stage.Eventually(t, "the second replica has planned instead of the first", func() bool {
		return len(c.holds()) > 0 || len(b.replica.Status().Moves) > 0
	})
	a.faults.all(pass)
	s.becomesShared(a, b, c)
}

func TestAReplicaEndsWithoutTheHubOnceNothingRuns(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	a.faults.all(freeze)
	begun := time.Now()
	a.stop()
	t.Logf("ended after %s", time.Since(begun))
	stage.Within(t, s.lease+2*time.Second, "the other owns all members", func() bool { return len(b.holds()) == 20 })
}

// Somebody deletes the Lease of a session that works: it hears of that, and until then nobody takes over.
func TestASessionWhoseLeaseSomebodyDeletesIsNotTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	a.faults.all(freeze) // so that it does not hear
	session := a.session()
	config := s.cp.Config()
	h, err := newHub(config, s.namespace, systemClock{time.Now()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	if err := h.writing.Delete(t.Context(), b.replica.opts.leaseName(session), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "the other owns all members", func() bool { return len(b.holds()) == 20 })
	a.faults.all(pass)
	s.becomesShared(a, b)
}

func TestSomebodyWhoDeletesTheTableMakesAllBeginAnew(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	sessions := []string{a.session(), b.session()}
	b.faults.set(func(req *http.Request) fault { // it does not hear for a while
		if isWatch(req) {
			return freeze
		}
		return pass
	})
	h, err := newHub(s.cp.Config(), s.namespace, systemClock{time.Now()}, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	if err := h.writing.Delete(t.Context(), "test.table", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "all have new sessions", func() bool {
		return a.session() != sessions[0] && b.session() != sessions[1]
	})
	b.faults.all(pass)
	s.becomesShared(a, b)
}

// A stranger holds a Lease that looks like a session's, and says that it may be silent for ever.
func TestAStrangersSessionIsFencedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	a := s.start("a")
	s.becomesShared(a)
	strange := a.replica.newSession()
	strange.described.Spec.LeaseDurationSeconds = new(int32(1))
	if err := strange.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	stage.Eventually(t, "it is gone", func() bool { return len(s.leases()) == 2 })
	s.becomesShared(a)
}
