package members

import (
	"testing"
	"time"
)

// TestAMemberThatTheWatchHasNotBroughtIsNotForgotten: it would be taken for one that never was a member's.
func TestAMemberThatTheWatchHasNotBroughtIsNotForgotten(t *testing.T) {
	t.Parallel()
	s := shown{of: map[string]*record{}, strangers: map[string]bool{}}
	s.joined("east", "east", true)
	s.wrote("east", nil)
	s.joined("east", "east", false)
	if wait := s.forget("east"); wait <= 0 || !s.isGone("east") {
		t.Errorf("it is forgotten, and looked at again after %s", wait)
	}
	s.of["east"].written = time.Now().Add(-awaitFor)
	if wait := s.forget("east"); wait > 0 || len(s.of) > 0 {
		t.Errorf("it is not forgotten, and looked at again after %s", wait)
	}
}
