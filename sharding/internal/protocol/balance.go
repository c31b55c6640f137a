package protocol

import (
	"cmp"
	"math"
	"slices"
)

// Within these parts of its fair share, the load of a session is left alone.
const (
	leastPart = 0.9
	mostPart  = 1.1
)

// bounds are those of a session's load.
type bounds struct{ share, low, high float64 }

// balance moves what is above the bounds of a session to the least loaded ones, and then fills those that are below theirs, until
// nothing is out of bounds, nothing gets better, or enough is moving. Each move makes the loads more alike: so plan after
// plan comes to an end.
func (p *plan) balance() {
	if len(p.takers) < 2 {
		return
	}
	limit := p.in.AtOnce
	if limit <= 0 {
		limit = DefaultAtOnce
	}
	budget := int64(limit * float64(p.total))
	bounds := p.bounds()
	for ; p.in.Most == 0 || p.balanced < p.in.Most; p.balanced++ {
		// One bucket may always move, however heavy it is: else it could never.
		room := budget - p.moving
		if p.moving == 0 {
			room = math.MaxInt64
		}
		s, from, to := p.next(bounds, room)
		if to == nil {
			return
		}
		from.buckets = slices.DeleteFunc(from.buckets, func(b int) bool { return b == s.bucket })
		w := p.weight[s.bucket]
		from.load -= w
		to.load += w
		p.moving += w
		p.move(s, to)
	}
}

// bounds returns those of each taker. What one bucket weighs beyond a fair share cannot be balanced: its owner and its weight
// are left out of what the others share.
func (p *plan) bounds() map[*session]bounds {
	total, capacity := float64(p.total), int64(0)
	heaviest := make(map[*session]float64, len(p.takers))
	for _, s := range p.takers {
		capacity += s.capacity
		for _, b := range s.buckets {
			heaviest[s] = max(heaviest[s], float64(p.weight[b]))
		}
	}
	apart := make(map[*session]bool)
	share := total / float64(capacity)
	for found := true; found; {
		found = false
		for _, s := range p.takers {
			if !apart[s] && heaviest[s] > mostPart*share*float64(s.capacity) && capacity > s.capacity {
				found, apart[s] = true, true
				total -= heaviest[s]
				capacity -= s.capacity
				share = total / float64(capacity)
			}
		}
	}
	of := make(map[*session]bounds, len(p.takers))
	for _, s := range p.takers {
		fair := share * float64(s.capacity)
		of[s] = bounds{
			share: fair,
			low:   min(math.Floor(fair), math.Ceil(leastPart*fair)),
			high:  max(math.Ceil(fair), math.Floor(mostPart*fair), heaviest[s]),
		}
	}
	return of
}

// next returns the next bucket to move for balance, from which session and to which, or no session if there is none. It weighs
// no more than room.
func (p *plan) next(of map[*session]bounds, room int64) (s stray, from, to *session) {
	up := slices.Clone(p.takers)
	slices.SortStableFunc(up, func(a, b *session) int { return cmp.Compare(a.load*b.capacity, b.load*a.capacity) })
	down := slices.Clone(up)
	slices.Reverse(down)
	for _, from := range down {
		if float64(from.load) <= of[from].high {
			continue
		}
		for _, to := range up {
			if b, ok := p.fitting(from, to, of[from].share, room); ok {
				return stray{b, Overloaded}, from, to
			}
		}
	}
	for _, to := range up {
		if float64(to.load) >= of[to].low {
			continue
		}
		for _, from := range down {
			if b, ok := p.fitting(from, to, of[from].share, room); ok {
				return stray{b, Underloaded}, from, to
			}
		}
	}
	return stray{}, nil, nil
}

// fitting returns the bucket whose move from one session to another makes their loads most alike without taking the one below
// its share: the heaviest such bucket, so that few move. If there is none, it is the lightest that makes them more alike.
func (p *plan) fitting(from, to *session, share float64, room int64) (bucket int, ok bool) {
	// The sum of load²/capacity falls if less than twice this is moved, and falls furthest if it is just this.
	alike := float64(from.load*to.capacity-to.load*from.capacity) / float64(from.capacity+to.capacity)
	wanted := min(alike, float64(from.load)-share)
	lighter, lightest := -1, -1
	for _, b := range from.buckets {
		w := float64(p.weight[b])
		switch {
		case p.weight[b] > room || w >= 2*alike:
		case w <= wanted && (lighter < 0 || p.weight[b] > p.weight[lighter]):
			lighter = b
		case w > wanted && (lightest < 0 || p.weight[b] < p.weight[lightest]):
			lightest = b
		}
	}
	if lighter >= 0 {
		return lighter, true
	}
	return lightest, lightest >= 0
}
