package dependents

import (
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// errContended says that others write whenever the controller does.
var errContended = errors.New("others change it whenever it is written; are there two controllers for it?")

// errDeleted says so of an object that is not there meanwhile.
var errDeleted = fmt.Errorf("it was deleted again: %w", errContended)

// contended is how many attempts in a row may find that an object was changed meanwhile, before that is told. As many times in a row
// it is changed back at once.
const contended = 5

// mostPause is the longest pause between attempts: what is wrong in another cluster is often put right there, and nobody tells.
// A contest is over once the object has stayed as desired for so long.
const mostPause = time.Minute

// pauseAfter returns the pause after so many attempts in a row.
func pauseAfter(attempts int) time.Duration {
	return min(100*time.Millisecond<<min(attempts-1, 10), mostPause)
}

// retried counts how often in a row objects of a cluster were not as they were thought to be. False ends the row.
func (o *ownerState) retried(name mcreconcile.ClusterName, again bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	if !again {
		p.retries = 0
	} else {
		p.retries++
	}
	return p.retries
}

// awaited counts how often in a row it was not known what is desired in a cluster. False ends the row.
func (o *ownerState) awaited(name mcreconcile.ClusterName, again bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(name)
	p.awaits++
	if !again {
		p.awaits = 0
	}
	return p.awaits
}

// contest is how others write against the controller about one object, without conflicts: each after the other.
type contest struct {
	corrections int       // in a row
	last        time.Time // when the last of them was
	lost        bool      // others have changed the object again
}

// untilCorrection returns how long an object that others have changed is left to them, zero for not at all.
func (o *ownerState) untilCorrection(key dependentKey, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	contests := o.partLocked(key.cluster).contests
	c, ok := contests[key]
	switch {
	case !ok:
		return 0
	case !c.lost && now.Sub(c.last) >= mostPause: // it is another one
		delete(contests, key)
		return 0
	}
	c.lost = true
	contests[key] = c
	if c.corrections < contended {
		return 0
	}
	return max(0, pauseAfter(c.corrections)-now.Sub(c.last))
}

// corrected notes that an object which others had changed was written.
func (o *ownerState) corrected(key dependentKey, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	contests := o.partLocked(key.cluster).contests
	contests[key] = contest{corrections: contests[key].corrections + 1, last: now}
}

// untilCalm returns how long a contest about an object that is as desired goes on, zero if it is none, or over.
func (o *ownerState) untilCalm(key dependentKey, now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	contests := o.partLocked(key.cluster).contests
	c, ok := contests[key]
	left := mostPause - now.Sub(c.last)
	switch {
	case !ok:
		return 0
	case left <= 0:
		delete(contests, key)
		return 0
	}
	c.lost = false
	contests[key] = c
	if c.corrections < contended {
		return 0
	}
	return left
}

// holdOff returns an error while an object is left to others that have changed it.
func (p *placement) holdOff(key dependentKey, object string) error {
	return p.contention(object, p.o.untilCorrection(key, time.Now()))
}

// calm returns an error while others may be about to change an object that is as desired, as they have done time and again.
func (p *placement) calm(key dependentKey, object string) error {
	return p.contention(object, p.o.untilCalm(key, time.Now()))
}

// contention returns the error of a contest that goes on, and sees to it that the object is looked at when that may change.
func (p *placement) contention(object string, left time.Duration) error {
	if left == 0 {
		return nil
	}
	if p.pause == 0 || left < p.pause {
		p.pause = left
	}
	return fmt.Errorf("%s of %s: %w", object, p.at, errContended)
}

// isContended reports whether an error is only about objects that others change back.
func isContended(err error) bool {
	return err != nil && first(each(err), func(one error) bool { return !errors.Is(one, errContended) }) == nil
}

// unlessContended returns an error unless it is only about objects that are there, and that others change back. They were applied, and
// hold up nothing else.
func unlessContended(err error) error {
	if isContended(err) && first(each(err), func(one error) bool { return errors.Is(one, errDeleted) }) == nil {
		return nil
	}
	return err
}
