package replicas

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// leaseOfClocks leaves a replica time for its requests whose clock goes too fast.
const leaseOfClocks = 9 * time.Second

// slow and fast are as far from the true rate as clocks may go.
const slow, fast = 0.7, 1.3

// TestClocks tests that no two replicas write to a member at once, however their clocks go. No change is lost, and no member is
// without an owner for long.
func TestClocks(t *testing.T, clusters *mctest.Fleet) {
	t.Helper()
	for name, play := range map[string]func(*scene){
		"a slow one loses its hub":                          aSlowOneLosesItsHub,
		"a fast one is killed":                              aFastOneIsKilled,
		"the wall clock of one is set forward":              func(s *scene) { aWallClockIsSet(s, time.Hour) },
		"the wall clock of one is set back":                 func(s *scene) { aWallClockIsSet(s, -time.Hour) },
		"a monotonic clock stands still of one without hub": aMonotonicClockStops,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, clusters, 6, 20)
			// Others take over a moment after the slowest clock says that a session is over. This is for a machine that is late.
			s.takes = 500 * time.Millisecond
			play(s)
			s.end()
		})
	}
}

// runAt starts a replica with a clock of its own.
func (s *scene) runAt(name string, hub *rest.Config, c Clock) {
	s.Helper()
	s.run(name, hub, func(r *role) { r.Clock, r.Sharding.LeaseDuration = c, leaseOfClocks })
}

// aSlowOneLosesItsHub, so that it believes for longest that its session is valid, and others believe soonest that it was silent.
func aSlowOneLosesItsHub(s *scene) {
	between := stage.NewNetworkTo(s.T, s.hub)
	s.runAt("r0", s.hub.Config(), Clock{Rate: fast})
	s.runAt("r1", s.hub.Config(), Clock{Rate: fast})
	s.runAt("r2", between.Through(s.hub.Config()), Clock{Rate: slow})
	s.become(time.Now(), "r0", "r1", "r2")
	s.cutOff(between, leaseOfClocks+2*time.Second)
}

func aFastOneIsKilled(s *scene) {
	s.runAt("r0", s.hub.Config(), Clock{Rate: slow})
	s.runAt("r1", s.hub.Config(), Clock{Rate: slow})
	s.runAt("r2", s.hub.Config(), Clock{Rate: fast})
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	s.processes["r2"].Kill()
	s.without(since, "r2")
	lease := float64(leaseOfClocks) / slow // by the clock of those that take over
	s.isServed(since, time.Duration(lease)+2*time.Second)
}

// aWallClockIsSet costs nobody a session, and so no member. After that, the session ends by the other clock when it is not renewed.
func aWallClockIsSet(s *scene, by time.Duration) {
	between := stage.NewNetworkTo(s.T, s.hub)
	s.runAt("r0", s.hub.Config(), Clock{})
	s.runAt("r1", s.hub.Config(), Clock{})
	s.runAt("r2", between.Through(s.hub.Config()), Clock{Jump: by})
	s.become(time.Now(), "r0", "r1", "r2")
	since, session := time.Now(), s.session("r2")
	s.setsItsClock("r2")
	s.become(time.Now(), "r0", "r1", "r2")
	s.isServed(since, leaseOfClocks/5+time.Second) // until the next renewal
	if now := s.session("r2"); now != session {
		s.Errorf("r2 has the session %q, as its clock was set, and %q before", now, session)
	}
	s.cutOff(between, leaseOfClocks+2*time.Second)
}

// aMonotonicClockStops, as that of a machine that sleeps, and goes on with the same.
func aMonotonicClockStops(s *scene) {
	between := stage.NewNetworkTo(s.T, s.hub)
	s.runAt("r0", s.hub.Config(), Clock{})
	s.runAt("r1", s.hub.Config(), Clock{})
	s.runAt("r2", between.Through(s.hub.Config()), Clock{Stops: true})
	s.become(time.Now(), "r0", "r1", "r2")
	s.setsItsClock("r2")
	s.cutOff(between, leaseOfClocks+2*time.Second)
}

// cutOff takes its hub from r2 until the others have taken over, which takes as long at most, and r2 knows that it may not write: what it
// writes meanwhile would show.
func (s *scene) cutOff(between *stage.Network, atMost time.Duration) {
	s.Helper()
	since := time.Now()
	between.Hold(true, true)
	s.without(since, "r2")
	stage.Eventually(s.T, "r2 is suspended", s.isSuspended("r2"))
	between.Hold(false, false)
	s.become(time.Now(), "r0", "r1", "r2")
	s.isServed(since, atMost)
}

// isSuspended goes by what the replica has said last, as its clock or a busy machine may have suspended it before.
func (s *scene) isSuspended(name string) func() bool {
	return func() bool {
		said := s.processes[name].Lines("This replica is suspended")
		return len(said) > 0 && !strings.Contains(said[len(said)-1], "no more")
	}
}

// setsItsClock makes the clock of a replica do what it was told to do.
func (s *scene) setsItsClock(name string) {
	s.Helper()
	s.processes[name].Signal(syscall.SIGUSR1)
	s.processes[name].Writes(ClockWasSet)
}

// ClockWasSet is what a process writes to its log when its clock was set.
const ClockWasSet = "The clock was set"
