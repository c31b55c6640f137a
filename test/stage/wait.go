package stage

import (
	"context"
	"testing"
	"time"
)

// lookEvery is how often tests look whether something holds. Many look by a request, so more often would keep a core busy.
const lookEvery = 50 * time.Millisecond

// patience ends a test that fails. No test passes because of it.
const patience = 2 * time.Minute

// Eventually waits until what holds, and says what did not if it takes too long.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not so after %s: %s", patience, what)
		}
	}
}
