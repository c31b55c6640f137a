package stage

import (
	"context"
	"os"
	"testing"
	"time"
)

const (
	// lookEvery is how often tests look whether something holds. Many look by a request, so more often would keep a core busy.
	lookEvery = 50 * time.Millisecond
	// patience ends a test that fails. No test passes because of it.
	patience = 2 * time.Minute
	// reaction is how soon a program is to react to a change, on a machine with nothing else to do.
	reaction = 5 * time.Second
)

// busy is how much later something may happen on a machine that runs other tests too: none with PROMPT=yes, for tests that run alone.
// It is added, as a program that waits for a clock waits no longer there.
func busy() time.Duration {
	if os.Getenv("PROMPT") == "yes" {
		return 0
	}
	return time.Minute
}

// Eventually waits until what holds, and says what did not if it takes too long.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !await(t, patience, holds) {
		t.Fatalf("still not so after %s: %s", patience, what)
	}
}

// Soon waits until what holds. The program is to react within 5 seconds, see [Within].
func Soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	Within(t, reaction, what, holds)
}

// Within waits until what holds, for as long as it may take, and a minute longer where the machine is busy with other tests, which
// is unless PROMPT=yes. The log of the test says if that minute was needed.
func Within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	begun := time.Now()
	if !await(t, limit+busy(), holds) {
		t.Fatalf("still not so after %s, and %s for a busy machine: %s", limit, busy(), what)
	}
	if took := time.Since(begun); took > limit {
		t.Logf("after %s, more than %s: %s", took.Round(10*time.Millisecond), limit, what)
	}
}

// Stays looks for the whole period whether what holds, and says when it does not.
func Stays(t *testing.T, period time.Duration, what string, holds func() bool) {
	t.Helper()
	begun := time.Now()
	if await(t, period, func() bool { return !holds() }) {
		t.Fatalf("no longer so after %s: %s", time.Since(begun).Round(10*time.Millisecond), what)
	}
}

// await looks again and again until something holds, and reports whether it does before the limit.
func await(t *testing.T, limit time.Duration, holds func() bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
