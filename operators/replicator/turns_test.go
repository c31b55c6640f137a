package main

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// namespaceOf is a namespace in a test of turns: so many targets whose overrides take so long each, again and again.
type namespaceOf struct {
	name    string
	targets int
	takes   time.Duration
}

// manyOf returns namespaces that are alike.
func manyOf(n int, like namespaceOf) []namespaceOf {
	all := make([]namespaceOf, n)
	for i := range all {
		all[i] = like
		all[i].name += fmt.Sprint("-", i)
	}
	return all
}

// turnsOf says what a namespace had.
type turnsOf struct {
	had     int
	longest time.Duration // without one
	last    time.Time
}

func (t *turnsOf) note(now time.Time) {
	t.longest = max(t.longest, now.Sub(t.last))
	t.last = now
}

// share lets namespaces take turns for a while, as the controller does: it has sixteen workers, and tries what is busy again after pauses
// that grow from a tenth of a second to a minute. Time is that of a bubble of package synctest.
func share(t *testing.T, during time.Duration, all ...namespaceOf) map[string]*turnsOf {
	t.Helper()
	var c children
	var mu sync.Mutex // guards results
	results := map[string]*turnsOf{}
	workers, end := make(chan struct{}, 16), time.Now().Add(during)
	var running sync.WaitGroup
	for _, of := range all {
		result := &turnsOf{last: time.Now()}
		results[of.name] = result
		for range of.targets {
			running.Go(func() {
				pause := 100 * time.Millisecond
				for time.Now().Before(end) {
					workers <- struct{}{}
					has, err := c.take(t.Context(), of.name)
					if err == nil {
						<-time.After(of.takes)
						has.wasSlow = of.takes > slowAfter
						c.give(has)
					}
					<-workers
					if err != nil {
						<-time.After(pause)
						pause = min(2*pause, time.Minute)
						continue
					}
					pause = 100 * time.Millisecond
					mu.Lock()
					result.had++
					result.note(time.Now())
					mu.Unlock()
				}
			})
		}
	}
	running.Wait()
	for _, of := range all {
		results[of.name].note(end)
	}
	if c.lent != 0 || c.slow != 0 || len(c.waiting) > 0 {
		t.Errorf("in the end, %d turns are lent, %d of them slow, and %d wait", c.lent, c.slow, len(c.waiting))
	}
	return results
}

// TestSlowNamespacesGetTurnsInBoundedTimeAndQuickOnesKeepTheirs, whoever is beside them. Those that were slow had none at all within a minute while two
// others were busy.
func TestSlowNamespacesGetTurnsInBoundedTimeAndQuickOnesKeepTheirs(t *testing.T) {
	t.Parallel()
	const during = 10 * time.Minute
	quick := namespaceOf{"quick", 8, 197 * time.Millisecond} // with more targets than it gets workers
	slow := namespaceOf{"slow", 8, 883 * time.Millisecond}
	for name, c := range map[string]struct {
		all  []namespaceOf
		most time.Duration // without a turn
	}{
		"one slow beside one":      {[]namespaceOf{slow, quick}, 2 * time.Second},
		"one slow beside two":      {append(manyOf(2, quick), slow), 5 * time.Second},
		"one slow beside five":     {append(manyOf(5, quick), slow), 5 * time.Second},
		"ten slow beside one":      {append(manyOf(10, slow), quick), 30 * time.Second},
		"ten slow beside two":      {slices.Concat(manyOf(10, slow), manyOf(2, quick)), 30 * time.Second},
		"thirty slow beside five":  {slices.Concat(manyOf(30, slow), manyOf(5, quick)), time.Minute},
		"slow ones and no others":  {manyOf(10, slow), 30 * time.Second},
		"one slow beside fifty":    {append(manyOf(50, quick), slow), time.Minute},
		"quick ones and no others": {manyOf(20, quick), 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			results := share(t, during, c.all...)
			var used time.Duration // by those that are quick
			busy := 0
			for _, of := range c.all {
				result := results[of.name]
				if result.longest > c.most {
					t.Errorf("%s: %s has had %d turns, and none for %s", name, of.name, result.had, result.longest)
				}
				if of.takes == quick.takes {
					busy++
					used += time.Duration(result.had) * of.takes
				}
			}
			if busy > 0 && used < (mostOfOne*during)*9/10 {
				t.Errorf("%s: those that are quick had %s of %s", name, used, mostOfOne*during)
			}
		})
	}
}
