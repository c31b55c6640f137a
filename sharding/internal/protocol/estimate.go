package protocol

import "time" //nolint:depguard // durations that callers pass: it reads no clock

// estimate follows what a bucket costs. It is a moving average whose weights fall exponentially, and at first a plain one: so the
// first sample does not count for more than those after it.
type estimate struct {
	rate float64       // the seconds that workers spend in a second
	over time.Duration // the time that was measured, as far as it counts
}

// estimateOf begins with what is known of a bucket, as if it had been measured for as long as counts.
func estimateOf(known Level, memory time.Duration) estimate {
	if known == Unmeasured {
		return estimate{}
	}
	return estimate{known.Rate(), memory}
}

// add adds a sample: the time that workers have spent, during a time. After as long as memory, it counts for 1/e.
func (e *estimate) add(spent, during, memory time.Duration) {
	if during <= 0 || spent < 0 {
		return
	}
	part := float64(during) / float64(e.over+during)
	e.rate += part * (float64(spent)/float64(during) - e.rate)
	e.over = min(e.over+during, memory)
}

// level returns what the bucket costs, if it was measured for long enough.
func (e *estimate) level(enough time.Duration) Level {
	if e.over < enough {
		return Unmeasured
	}
	return LevelOf(e.rate)
}
