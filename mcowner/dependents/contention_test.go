package dependents

import (
	"errors"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAContest: what others change back is corrected at once the first times, then the later the more often, until they leave it alone.
func TestAContest(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{})
	key, other := dependentKey{cluster: "a"}, dependentKey{cluster: "b"}
	now := time.Now()
	for range contended {
		if wait := o.untilCorrection(key, now); wait != 0 {
			t.Fatalf("it is corrected after %s, want at once", wait)
		}
		if left := o.untilCalm(key, now); left != 0 {
			t.Fatalf("it counts as contended for %s, after few corrections", left)
		}
		o.corrected(key, now)
		now = now.Add(time.Millisecond)
	}
	pauses := make([]time.Duration, 0, 10)
	for range 10 {
		if left := o.untilCalm(key, now); left <= mostPause-time.Second || left > mostPause {
			t.Fatalf("it counts as contended for %s, want %s since it was corrected", left, mostPause)
		}
		wait := o.untilCorrection(key, now)
		if wait <= 0 || wait > mostPause {
			t.Fatalf("it is corrected after %s, after as many pauses as %v", wait, pauses)
		}
		pauses = append(pauses, wait)
		now = now.Add(wait)
		if wait := o.untilCorrection(key, now); wait != 0 {
			t.Fatalf("it is corrected %s later than was said", wait)
		}
		o.corrected(key, now)
		now = now.Add(time.Millisecond)
	}
	if first, last := pauses[0], pauses[len(pauses)-1]; first > 2*time.Second || last < mostPause-time.Second {
		t.Errorf("the pauses are %v, want about a second at first, and a minute in the end", pauses)
	}
	if wait := o.untilCorrection(other, now); wait != 0 {
		t.Errorf("what is in another cluster is corrected after %s", wait)
	}
	o.untilCalm(key, now)
	if wait := o.untilCorrection(key, now.Add(mostPause)); wait != 0 {
		t.Errorf("it was left alone for a minute, and is corrected after %s", wait)
	}
}

// TestAContestEnds once the object has stayed as desired, or is not desired any more.
func TestAContestEnds(t *testing.T) {
	t.Parallel()
	key := dependentKey{cluster: "a"}
	start := func() (*ownerState, time.Time) {
		o, now := newOwnerState(mcreconcile.Request{}), time.Now()
		for range contended {
			o.corrected(key, now)
		}
		return o, now
	}
	o, now := start()
	if left := o.untilCalm(key, now.Add(mostPause)); left != 0 || len(o.partLocked("a").contests) > 0 {
		t.Errorf("it has stayed as desired for a minute, and counts as contended for %s", left)
	}
	o, now = start()
	o.keep("a", nil)
	if wait := o.untilCorrection(key, now); wait != 0 {
		t.Errorf("it is another one of the name, and is corrected after %s", wait)
	}
	o, now = start()
	o.untilCorrection(key, now) // by a cache that is behind
	o.untilCalm(key, now)
	if wait := o.untilCorrection(key, now.Add(mostPause)); wait != 0 {
		t.Errorf("it has stayed as desired for a minute, and is corrected after %s", wait)
	}
}

// TestWhatIsContendedHoldsUpNothing else, while it is there.
func TestWhatIsContendedHoldsUpNothing(t *testing.T) {
	t.Parallel()
	changed, refused := errors.Join(errors.New("x"), errContended), errors.New("refused")
	for name, c := range map[string]struct {
		err        error
		only, left bool
	}{
		"nothing":                   {nil, false, false},
		"changed back":              {changed, true, false},
		"two of them":               {together(changed, errContended), true, false},
		"deleted":                   {errDeleted, true, true},
		"changed back and deleted":  {together(changed, errDeleted), true, true},
		"changed back, and refused": {together(changed, refused), false, true},
	} {
		if is, left := isContended(c.err), unlessContended(c.err) != nil; is != c.only || left != c.left {
			t.Errorf("%s: it is only that: %t, and holds up others: %t", name, is, left)
		}
	}
}
