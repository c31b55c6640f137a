package protocol

import (
	"math"
	"slices"
	"time" //nolint:depguard // durations that callers pass: it reads no clock
)

// Pace says how often costs are looked at.
type Pace struct {
	// Sample is how long a sample takes.
	Sample time.Duration
	// WarmUp is how long after a replica has taken a bucket nothing is measured: its members are listed anew, and each of their
	// objects is reconciled.
	WarmUp time.Duration
	// Enough is for how long a bucket is measured until its cost is said.
	Enough time.Duration
	// Memory is after how long a sample counts for 1/e. What nobody has said for as long is forgotten.
	Memory time.Duration
	// Say is how often a replica says anew at most what its buckets cost, and how often a planner heeds it.
	Say time.Duration
}

// DefaultPace is that of clusters: what is done there changes within minutes.
func DefaultPace() Pace {
	return Pace{Sample: 10 * time.Second, WarmUp: 2 * time.Minute, Enough: 2 * time.Minute, Memory: 10 * time.Minute, Say: time.Minute}
}

// muchOther is which part of what a replica has said must be wrong until it says it anew.
const muchOther = 0.1

// Costs are what one replica knows of what buckets cost: it measures those that it holds, and hears of the others. Times are by its
// own monotonic clock. It is for one goroutine at a time.
type Costs struct {
	pace    Pace
	own     []ownCost
	known   []heardCost
	used    []Level
	said    map[string]*saying
	sampled time.Duration
	told    time.Duration // when the replica said its costs last
	heeded  time.Duration // when used was taken from known last
	begun   bool
}

// ownCost is what this replica has measured of a bucket.
type ownCost struct {
	estimate

	term  any // in which it is held, nil if it is not
	since time.Duration
	told  Level
}

// heardCost is what its owner said last of a bucket.
type heardCost struct {
	level Level
	at    time.Duration
}

// saying is what one session says.
type saying struct {
	text    string
	costs   []Cost
	problem error
	strange int // buckets that it does not own
}

// NewCosts returns what a replica knows at first: nothing.
func NewCosts(pace Pace) *Costs { return &Costs{pace: pace, said: map[string]*saying{}} }

// Due returns how long it is until the next sample.
func (c *Costs) Due(now time.Duration) time.Duration {
	if !c.begun {
		return 0
	}
	return c.pace.Sample - (now - c.sampled)
}

// Used returns the level of a bucket that plans go by.
func (c *Costs) Used(b int) Level {
	if b >= len(c.used) {
		return Unmeasured
	}
	return c.used[b]
}

// Said tells of how many of its buckets a session says a cost, of how many that it does not own, and why nothing can be made of
// what it says. Just after buckets have moved, their owner before says their cost too.
func (c *Costs) Said(session string) (of, strange int, problem error) {
	s := c.said[session]
	if s == nil {
		return 0, 0, nil
	}
	return len(s.costs) - s.strange, s.strange, s.problem
}

// Hear takes what sessions say, by session. A session counts for the buckets alone that it owns. It returns the sessions of which
// nothing can be made since now.
func (c *Costs) Hear(now time.Duration, t *Table, texts map[string]string) (problems map[string]error) {
	c.fit(t.Buckets())
	for session := range c.said {
		if texts[session] == "" {
			delete(c.said, session)
		}
	}
	for session, text := range texts {
		s := c.said[session]
		if text != "" && (s == nil || s.text != text) {
			s = &saying{text: text}
			s.costs, s.problem = DecodeCosts(text)
			c.said[session] = s
			if s.problem != nil {
				if problems == nil {
					problems = map[string]error{}
				}
				problems[session] = s.problem
			}
		}
		if s != nil {
			c.believe(now, t, session, s)
		}
	}
	return problems
}

func (c *Costs) believe(now time.Duration, t *Table, session string, s *saying) {
	s.strange = 0
	for _, cost := range s.costs {
		if cost.Bucket >= len(c.known) || t.Owner[cost.Bucket] != session {
			s.strange++
			continue
		}
		c.known[cost.Bucket] = heardCost{cost.Level, now}
	}
}

// fit makes room for as many buckets as the table has. Of another table, nothing is known.
func (c *Costs) fit(buckets int) {
	if len(c.known) == buckets {
		return
	}
	c.own, c.known, c.used = make([]ownCost, buckets), make([]heardCost, buckets), make([]Level, buckets)
	for b := range buckets {
		c.own[b].told, c.known[b].level, c.used[b] = Unmeasured, Unmeasured, Unmeasured
	}
}

// knownLevel is what was said of a bucket, unless that is long ago: its owner does not measure.
func (c *Costs) knownLevel(b int, now time.Duration) Level {
	if now-c.known[b].at > c.pace.Memory {
		return Unmeasured
	}
	return c.known[b].level
}

// Sample measures what this replica holds. spent returns in which term it holds a bucket, nil if it does not, and the time that
// workers have spent since the last call. Without a proof that it is the owner, as in an outage of the local cluster, no
// reconcile runs, which says nothing of costs.
func (c *Costs) Sample(now time.Duration, proved bool, spent func(b int) (term any, spent time.Duration)) {
	during := now - c.sampled
	for b := range c.own {
		o := &c.own[b]
		term, spent := spent(b)
		if term != o.term {
			*o = ownCost{term: term, since: now, told: o.told}
			if term != nil {
				o.estimate = estimateOf(c.knownLevel(b, now), c.pace.Memory)
			}
			continue
		}
		if term != nil && proved && now-o.since > c.pace.WarmUp {
			o.add(spent, during, c.pace.Memory)
		}
	}
	c.sampled, c.begun = now, true
}

// Say returns what this replica has to say of its buckets, if that is much other than what it has said, and not too soon. At first
// it is that there is nothing, by which others know that this replica measures.
func (c *Costs) Say(now time.Duration) (text string, ok bool) {
	first := c.told == 0
	if !first && now-c.told < c.pace.Say {
		return "", false
	}
	var all []Cost
	var wrong, whole float64
	changed := false
	for b := range c.own {
		o := &c.own[b]
		level := Unmeasured
		if o.term != nil {
			level = o.level(c.pace.Enough)
		}
		if level != Unmeasured {
			all = append(all, Cost{b, level})
			whole += idleRate + o.told.Rate()
		}
		changed = changed || (level == Unmeasured) != (o.told == Unmeasured)
		wrong += math.Abs(level.Rate() - o.told.Rate())
	}
	if !first && !changed && wrong <= muchOther*whole {
		return "", false
	}
	for b := range c.own {
		c.own[b].told = Unmeasured
	}
	for _, cost := range all {
		c.own[cost.Bucket].told = cost.Level
	}
	c.told = now
	return EncodeCosts(all), true
}

// Begin forgets what this replica has said: it has another session.
func (c *Costs) Begin() {
	for b := range c.own {
		c.own[b].told = Unmeasured
	}
	c.told = 0
}

// Heed makes plans go by what is known now, if that is not too soon. It reports whether they may be others.
func (c *Costs) Heed(now time.Duration) bool {
	if c.heeded > 0 && now-c.heeded < c.pace.Say {
		return false
	}
	c.heeded = now
	fresh := make([]Level, len(c.known))
	for b := range fresh {
		fresh[b] = c.knownLevel(b, now)
	}
	if slices.Equal(fresh, c.used) {
		return false
	}
	c.used = fresh
	return true
}
