package stage

import (
	"context"
	"testing"
	"time"
)

// patience ends a test that fails. No test passes because of it.
const patience = 2 * time.Minute

// Eventually waits until what holds, and says what did not if it takes too long.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("still not so after %s: %s", patience, what)
		}
	}
}
