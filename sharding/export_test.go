package sharding

import (
	"time"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

// Pool has the control planes of the tests.
var Pool = &pool

// SkewedClock is a clock that goes wrong, for tests of other packages.
type SkewedClock struct{ *skewed }

// NewSkewedClock returns a clock that goes at a rate, 1 for the true one.
func NewSkewedClock(rate float64) SkewedClock { return SkewedClock{newSkewed(rate)} }

// Jump sets the wall clock forward, or back.
func (c SkewedClock) Jump(by time.Duration) { c.jump(by) }

// Stop makes the monotonic clock stand still from now on.
func (c SkewedClock) Stop() { c.stop() }

// NewWith is New with another clock.
func NewWith(opts Options, c SkewedClock) (*Replica, error) { return newReplica(opts, c) }
