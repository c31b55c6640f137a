package protocol

import "time" //nolint:depguard // durations that callers pass: it reads no clock

// Allowance bounds how many buckets a planner moves for balance, where costs are measured: a hundredth of all a minute. After a
// replica has joined there is no bound, until that has its share.
type Allowance struct {
	takers    map[string]bool // that are known
	spreading bool            // one has joined, and the plans since have all moved something
	left      float64
	at        time.Duration
}

// perMinute is which part of the buckets may move in a minute.
const perMinute = 0.01

// Most returns Input.Most for a plan.
func (a *Allowance) Most(now time.Duration, buckets int, replicas []Replica) int {
	takers := make(map[string]bool, len(replicas))
	for _, r := range replicas {
		if !r.Draining {
			takers[r.Session] = true
			a.spreading = a.spreading || !a.takers[r.Session]
		}
	}
	minute := max(1, perMinute*float64(buckets))
	if a.takers == nil {
		a.left = minute
	}
	a.left = min(minute, a.left+(now-a.at).Minutes()*perMinute*float64(buckets))
	a.at, a.takers = now, takers
	switch {
	case a.spreading:
		return 0
	case a.left < 1:
		return -1
	}
	return int(a.left)
}

// Planned notes what came of the plan.
func (a *Allowance) Planned(t *Table, in Input, steps []Step) {
	if a.spreading {
		a.spreading = len(steps) > 0 || len(t.Moving) > 0 || !in.balances(t)
		return
	}
	for _, step := range steps {
		if step.Do == Moved && (step.Why == Overloaded || step.Why == Underloaded) {
			a.left--
		}
	}
}
