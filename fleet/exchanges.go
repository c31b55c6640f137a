package fleet

import (
	"sync/atomic"
	"time"
)

// exchanges are the requests to a member that are under way, watches apart, the oldest first. One that has no answer is the
// first sign of a member that is lost.
type exchanges struct{ oldest, youngest *exchange }

// exchange is one request.
type exchange struct {
	begun        time.Time
	arrived      atomic.Int64 // when a part of the answer arrived last, in nanoseconds since begun, or zero
	older, newer *exchange
}

// arrives notes that a part of the answer arrives. It needs no lock.
func (x *exchange) arrives() { x.arrived.Store(int64(time.Since(x.begun))) }

func (xs *exchanges) add(x *exchange) {
	x.older = xs.youngest
	if x.older == nil {
		xs.oldest = x
	} else {
		x.older.newer = x
	}
	xs.youngest = x
}

func (xs *exchanges) remove(x *exchange) {
	if x.older == nil {
		xs.oldest = x.newer
	} else {
		x.older.newer = x.newer
	}
	if x.newer == nil {
		xs.youngest = x.older
	} else {
		x.newer.older = x.older
	}
	x.older, x.newer = nil, nil
}

// arrived returns when a part of an answer arrived last, zero for never. An answer that takes longer than most does not
// count: like the events of a watch, it shows that the server can reach us, and not that we can reach it.
func (xs *exchanges) arrived(most time.Duration) (last time.Time) {
	for x := xs.oldest; x != nil; x = x.newer {
		after := time.Duration(x.arrived.Load())
		if at := x.begun.Add(after); after > 0 && after < most && at.After(last) {
			last = at
		}
	}
	return last
}

// doubtful returns when the first of them has been without an answer for so long that there is doubt, zero if none is under
// way. heard is when the server last answered anything: then it was there. That takes least, or a third of the time for
// which a request had been under way before, if that is more, up to most: one that takes long by its nature, such as
// one for the log of a container, is no reason to ask the server for ever.
func (xs *exchanges) doubtful(heard time.Time, least, most time.Duration) (first time.Time) {
	for x := xs.oldest; x != nil; x = x.newer {
		since := x.begun
		if heard.After(since) {
			since = heard
		}
		at := since.Add(min(max(least, since.Sub(x.begun)/3), most))
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
