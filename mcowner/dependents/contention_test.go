package dependents

import (
	"errors"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAContest: what others change back is corrected at once the first times, then the later the more often, until they leave it alone.
func TestAContest(t *testing.T) {
	t.Parallel()
	o := newOwnerState(mcreconcile.Request{}, "1")
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
		o, now := newOwnerState(mcreconcile.Request{}, "1"), time.Now()
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
		"another has its place":     {errRestored, true, true},
		"may not be removed":        {errKept, false, false},
		"so, and changed back":      {together(changed, errKept), false, false},
		"so, and refused":           {together(errKept, refused), false, true},
		"changed back, and refused": {together(changed, refused), false, true},
	} {
		if is, left := isContended(c.err), unlessContended(c.err) != nil; is != c.only || left != c.left {
			t.Errorf("%s: it is only that: %t, and holds up others: %t", name, is, left)
		}
	}
}

// TestRemovalsThatAreUndone are tried again at once the first times, then the later the more often.
func TestRemovalsThatAreUndone(t *testing.T) {
	t.Parallel()
	o, now := newOwnerState(mcreconcile.Request{}, "1"), time.Now()
	undone := func(isDesired bool, times int) time.Duration {
		var left time.Duration
		for i := range times {
			r := removal{dependentKey{cluster: "a"}, strconv.Itoa(i), isDesired}
			left = o.untilRemoval(r, now)
			o.removed(r, now)
		}
		return left
	}
	key := dependentKey{cluster: "a"}
	for _, isDesired := range []bool{false, true} {
		if left := undone(isDesired, contended); left > 0 {
			t.Errorf("%d removals were undone, and the last one waits for %s", contended-1, left)
		}
		for range contended { // by a cache that is behind
			r := removal{key, strconv.Itoa(contended - 1), isDesired}
			if left := o.untilRemoval(r, now); left > 0 {
				t.Errorf("what is as it was removed waits for %s", left)
			}
			o.removed(r, now)
		}
		if left := o.untilRemoval(removal{key, "new", isDesired}, now); left != pauseAfter(contended) {
			t.Errorf("what was brought back %d times is left to others for %s", contended, left)
		}
	}
	if left := o.untilGone("a", map[dependentKey]bool{key: true}, now); len(left) > 0 {
		t.Errorf("what is there may be brought back: %v", left)
	}
	if left := o.untilGone("a", nil, now.Add(time.Second))[key]; left != mostPause-time.Second {
		t.Errorf("what is not there may be brought back for %s", left)
	}
	o.keep("a", map[dependentKey]bool{key: true})
	if left := o.untilRemoval(removal{key, "new", false}, now); left > 0 {
		t.Errorf("what was desired meanwhile waits for %s to be removed", left)
	}
}

// TestWhatIsHeldOffIsTheRunsOwn: others read what was reported, while what is told again gets times of its own.
func TestWhatIsHeldOffIsTheRunsOwn(t *testing.T) {
	t.Parallel()
	o, now := newOwnerState(mcreconcile.Request{}, "1"), time.Now()
	p := o.partLocked("a")
	p.done, p.result = true, Result{Err: errRestored, Objects: []ObjectResult{{UID: "1"}}}
	for i := range contended {
		o.removed(removal{dependentKey{cluster: "a"}, strconv.Itoa(i), false}, now)
	}
	o.untilRemoval(removal{dependentKey{cluster: "a"}, "new", false}, now)
	last, left := o.heldOff("a", 0, now)
	if left != pauseAfter(contended) || len(last.Objects) != 1 {
		t.Fatalf("it is left to others for %s, and there is %v", left, last.Objects)
	}
	last.Objects[0].Since = now
	if !p.result.Objects[0].Since.IsZero() {
		t.Error("what was reported has changed")
	}
}

// TestRemovalsAreForgotten as soon as they do not matter any more, and not as many are remembered as others like.
func TestRemovalsAreForgotten(t *testing.T) {
	t.Parallel()
	owner := func(m mode) *plan {
		return &plan{owner: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, ref: mcowner.Reference{UID: "1"}, mode: m}
	}
	start := func() (o *ownerState, now time.Time) {
		o, now = newOwnerState(mcreconcile.Request{}, "1"), time.Now()
		o.replan(owner(serving), testKeys)
		for i := range 2 * mostRemovals {
			name := types.NamespacedName{Name: strconv.Itoa(i)}
			o.removed(removal{dependentKey{cluster: "a", name: name}, "1", false}, now)
		}
		return o, now
	}
	o, now := start()
	if n := len(o.removals); n != mostRemovals {
		t.Errorf("%d removals are remembered, want %d", n, mostRemovals)
	}
	if left := o.untilRemoval(removal{dependentKey{cluster: "a", name: types.NamespacedName{Name: "0"}}, "2", false}, now); left > 0 {
		t.Errorf("the first removal of one of many was undone, and it waits for %s", left)
	}
	o.forgetRemovals(now.Add(mostPause))
	if n := len(o.removals); n != 1 {
		t.Errorf("%d removals are remembered after a minute, want the one that was undone", n)
	}
	o.forgetRemovals(now.Add(2 * mostPause))
	if n := len(o.removals); n > 0 {
		t.Errorf("%d removals are remembered after two minutes", n)
	}
	o, _ = start()
	o.replan(owner(serving), testKeys)
	if len(o.removals) == 0 {
		t.Error("the removals are forgotten as the owner changes")
	}
	if o.replan(owner(finishing), testKeys); len(o.removals) > 0 {
		t.Errorf("%d removals are remembered of an owner that goes", len(o.removals))
	}
}
