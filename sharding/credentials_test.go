package sharding

import (
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// TestAReplicaEndsThoughTheProgramHangsThatHasItsCredentials. client-go waits for such a program for ever, whatever a request's context
// says. The others take over, and it takes part again once the program answers.
func TestAReplicaEndsThoughTheProgramHangsThatHasItsCredentials(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	plugin := stage.NewPlugin(t, s.config)
	b := s.start("b")
	s.config = plugin.Config(s.config)
	a := s.start("a")
	s.becomesShared(a, b)
	for range 2 {
		plugin.Answer()
		s.becomesShared(a, b)
		plugin.Hang()
		stage.Eventually(t, "the other owns all members", func() bool { return len(b.holds()) == 10 })
	}
	a.cancel()
	select {
	case <-a.ended:
	case <-time.After(time.Minute): // it takes some seconds
		t.Error("the replica does not end")
	}
}
