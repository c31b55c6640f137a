package replicas

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

const (
	// afterDeath is for how long a member may be without an owner when that was killed, or silent, and afterExit when it ended.
	afterDeath = leaseOfTests + 2*time.Second
	afterExit  = time.Second
	// validity is for how long a replica may write after its last renewal.
	validity = leaseOfTests * 8 / 15
)

// TestNoTwoReplicasWriteToAMember at once, whatever happens to the replicas. No change is lost, and no member is without an owner for
// long.
func TestNoTwoReplicasWriteToAMember(t *testing.T) {
	clusters := pool.Start(t, mctest.Options{Clusters: 2})
	for name, test := range map[string]struct {
		members, changes int // a second, all together
		play             func(*scene)
	}{
		"one is killed":                                 {6, 20, oneIsKilled},
		"the one that plans is killed":                  {6, 20, thePlannerIsKilled},
		"one stands still, and goes on":                 {6, 20, oneStandsStill},
		"one is asked to end":                           {6, 20, oneEnds},
		"one is asked to end while writes are slow":     {6, 20, oneEndsWhileWritesAreSlow},
		"one loses its hub":                             {6, 20, oneLosesItsHub},
		"one has no answers of its hub":                 {6, 20, oneHasNoAnswers},
		"one has late answers of its hub":               {6, 20, oneHasLateAnswers},
		"the program hangs that one has credentials of": {6, 20, oneHasNoCredentials},
		"reconciles do not heed their contexts":         {4, 4, reconcilesAreDeaf},
		"there are one, then five, then two":            {10, 20, thereAreMoreAndFewer},
		"they are replaced by a new version":            {10, 100, theyAreReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, clusters, test.members, test.changes)
			test.play(s)
			s.end()
		})
	}
}

func oneIsKilled(s *scene) {
	s.start("r0", "r1", "r2")
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	s.processes["r2"].Kill()
	s.without(since, "r2")
	s.isServed(since, afterDeath)
}

func thePlannerIsKilled(s *scene) {
	s.start("r0", "r1", "r2") // the first one plans
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	s.processes["r0"].Kill()
	s.without(since, "r0")
	s.isServed(since, afterDeath)
	s.start("r3")
	s.become(time.Now(), "r1", "r2", "r3")
}

// oneStandsStill for longer than its lease, in the middle of reconciles that do not look whether they may go on.
func oneStandsStill(s *scene) {
	s.takes = 500 * time.Millisecond
	s.start("r0", "r1")
	s.run("r2", s.hub.Config(), func(r *role) { r.Deaf = true })
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	s.processes["r2"].Freeze()
	s.without(since, "r2")
	s.processes["r2"].Thaw()
	s.processes["r2"].Writes("A write was refused")
	s.become(time.Now(), "r0", "r1", "r2")
	s.isServed(since, afterDeath)
}

func oneEnds(s *scene) {
	s.start("r0", "r1", "r2")
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	s.processes["r0"].Stop()
	s.without(since, "r0")
	s.isServed(since, afterExit)
}

// oneEndsWhileWritesAreSlow: some are under way when it is asked to, and are carried out even if nobody waits for them.
func oneEndsWhileWritesAreSlow(s *scene) {
	const slow = time.Second
	for _, m := range s.members {
		m.recorder.Delay(slow)
	}
	s.start("r0", "r1", "r2")
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	s.processes["r0"].Stop()
	s.without(since, "r0")
	s.isServed(since, slow+slow+afterExit)
}

// theHubFails for one replica: others take over, and it takes part again when it can.
func theHubFails(s *scene, fail, repair func(*stage.Network)) {
	s.Helper()
	s.start("r0", "r1")
	between := stage.NewNetworkTo(s.T, s.hub)
	s.run("r2", between.Through(s.hub.Config()), func(*role) {})
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	fail(between)
	s.without(since, "r2")
	repair(between)
	s.become(time.Now(), "r0", "r1", "r2")
	s.isServed(since, afterDeath)
}

func letPass(n *stage.Network) { n.Hold(false, false) }

func oneLosesItsHub(s *scene) {
	theHubFails(s, func(n *stage.Network) { n.Hold(true, true) }, letPass)
}

func oneHasNoAnswers(s *scene) {
	theHubFails(s, func(n *stage.Network) { n.Hold(false, true) }, letPass)
}

func oneHasLateAnswers(s *scene) {
	theHubFails(s, func(n *stage.Network) { n.Delay(leaseOfTests / 4) }, func(n *stage.Network) { n.Delay(0) })
}

// oneHasNoCredentials any more of the hub, as the program hangs that provides them. It ends all the same when it is asked to.
func oneHasNoCredentials(s *scene) {
	plugin := stage.NewPlugin(s.T, s.hub.Config())
	s.start("r0", "r1")
	s.run("r2", plugin.Config(s.hub.Config()), func(*role) {})
	s.become(time.Now(), "r0", "r1", "r2")
	since := time.Now()
	plugin.Hang()
	s.without(since, "r2")
	s.isServed(since, afterDeath)
	begun := time.Now()
	s.processes["r2"].Stop()
	s.Logf("it has ended after %s", time.Since(begun))
}

// reconcilesAreDeaf: they go on for longer than a lease after their member has gone to another replica, and want to write then.
func reconcilesAreDeaf(s *scene) {
	s.run("deaf", s.hub.Config(), func(r *role) {
		r.Deaf, r.Takes, r.Sharding.DrainTimeout = true, leaseOfTests+2*time.Second, time.Second
	})
	s.become(time.Now(), "deaf")
	since := time.Now()
	s.start("other")
	s.become(time.Now(), "deaf", "other")
	s.processes["deaf"].Writes("A write was refused")
	s.isServed(since, validity+afterExit)
	since = time.Now()
	s.processes["deaf"].Stop()
	s.without(since, "deaf")
	s.isServed(since, validity+afterExit)
}

func thereAreMoreAndFewer(s *scene) {
	s.start("r0")
	s.become(time.Now(), "r0")
	since := time.Now()
	s.start("r1", "r2", "r3", "r4")
	s.become(time.Now(), "r0", "r1", "r2", "r3", "r4")
	var ending sync.WaitGroup
	for _, name := range []string{"r0", "r2", "r3"} {
		ending.Go(s.processes[name].Stop)
	}
	ending.Wait()
	s.become(time.Now(), "r1", "r4")
	s.isServed(since, afterExit)
}

// theyAreReplaced one after the other, as a Deployment does, while members change 100 times a second.
func theyAreReplaced(s *scene) {
	s.start("a0", "a1", "a2")
	s.become(time.Now(), "a0", "a1", "a2")
	since := time.Now()
	for i := range 3 {
		s.run(fmt.Sprintf("b%d", i), s.hub.Config(), func(r *role) { r.Sharding.Revision = "b" })
		s.processes[fmt.Sprintf("a%d", i)].Stop()
	}
	s.become(time.Now(), "b0", "b1", "b2")
	s.isServed(since, afterExit)
	all, most := s.moves(since)
	s.Logf("%d members have moved %d times, none more than %d times", len(s.members), all, most)
	if most > 3 {
		s.Errorf("a member has moved %d times", most)
	}
}
