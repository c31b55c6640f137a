package fleet

import (
	"sync/atomic"
	"time"
)

// flights are the requests to a member that are under way, watches apart, the oldest first. One that has no answer is the
// first sign of a member that is lost.
type flights struct{ oldest, youngest *flight }

// flight is one request.
type flight struct {
	begun        time.Time
	arrived      atomic.Int64 // when a part of the answer arrived last, in nanoseconds since begun, or zero
	older, newer *flight
}

// arrives notes that a part of the answer arrives. It needs no lock.
func (f *flight) arrives() { f.arrived.Store(int64(time.Since(f.begun))) }

func (fs *flights) add(f *flight) {
	f.older = fs.youngest
	if f.older == nil {
		fs.oldest = f
	} else {
		f.older.newer = f
	}
	fs.youngest = f
}

func (fs *flights) remove(f *flight) {
	if f.older == nil {
		fs.oldest = f.newer
	} else {
		f.older.newer = f.newer
	}
	if f.newer == nil {
		fs.youngest = f.older
	} else {
		f.newer.older = f.older
	}
	f.older, f.newer = nil, nil
}

// arrived returns when a part of an answer arrived last, zero for never. An answer that takes longer than most does not
// count: like the events of a watch, it shows that the server can reach us, and not that we can reach it.
func (fs *flights) arrived(most time.Duration) (last time.Time) {
	for f := fs.oldest; f != nil; f = f.newer {
		after := time.Duration(f.arrived.Load())
		if at := f.begun.Add(after); after > 0 && after < most && at.After(last) {
			last = at
		}
	}
	return last
}

// doubtful returns when the first of them has been without an answer for so long that there is doubt, zero if none is under
// way. heard is when the server last answered anything: then it was there. That takes least, or a third of the time for
// which a request had been under way before, if that is more, up to most: one that takes long by its nature, such as
// one for the log of a container, shall not have the server asked for ever.
func (fs *flights) doubtful(heard time.Time, least, most time.Duration) (first time.Time) {
	for f := fs.oldest; f != nil; f = f.newer {
		since := f.begun
		if heard.After(since) {
			since = heard
		}
		at := since.Add(min(max(least, since.Sub(f.begun)/3), most))
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
