package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// explored is all that can happen.
type explored struct {
	*model
	states []state
	from   []int32 // By which state each was found first.
	ids    map[state]int32
	// calm has, for all states one after the other, those that may follow without a fault. It ends for each at calmTo.
	calm   []int32
	calmTo []int
	// rests tells that nothing does, but for processes that start.
	rests []bool
}

func (m *model) explore(most int) (*explored, error) {
	m.tables = newTables()
	x := &explored{model: m, ids: map[state]int32{}}
	x.found(m.first(), -1)
	var next []event
	for n := 0; n < len(x.states); n++ { //nolint:intrange // It grows meanwhile.
		next = m.next(x.states[n], false, next)
		if err := x.follow(n, next); err != nil {
			return x, err
		}
		if len(x.states) > most {
			return x, fmt.Errorf("more than %d states", most)
		}
	}
	return x, nil
}

// follow notes what may follow on a state.
//
//go:norace
func (x *explored) follow(n int, next []event) error {
	from, rests := x.states[n], true
	for _, e := range next {
		to, first := x.found(e.to, int32(n))
		if e.to.faults == from.faults {
			x.calm = append(x.calm, to)
			rests = rests && e.to.up() > from.up()
		}
		if !first {
			continue
		}
		if b, two := e.to.writers(); two {
			return fmt.Errorf("two replicas may write to bucket %d:\n%s", b, x.trace(int(to)))
		}
	}
	x.calmTo, x.rests = append(x.calmTo, len(x.calm)), append(x.rests, rests)
	if x.tables.broken != "" {
		return fmt.Errorf("%s, after:\n%s", x.tables.broken, x.trace(n))
	}
	return nil
}

//go:norace
func (x *explored) found(s state, from int32) (id int32, first bool) {
	if id, known := x.ids[s]; known {
		return id, false
	}
	id = int32(len(x.states))
	x.ids[s] = id
	x.states, x.from = append(x.states, s), append(x.from, from)
	return id, true
}

// trace tells how a state came to be.
func (x *explored) trace(n int) string {
	var lines []string
	for ; x.from[n] >= 0; n = int(x.from[n]) {
		for _, e := range x.next(x.states[x.from[n]], true, nil) {
			if e.to == x.states[n] {
				lines = append([]string{e.name + "\n    " + x.String(e.to)}, lines...)
				break
			}
		}
	}
	return strings.Join(lines, "\n")
}

// settles checks that the replicas come to rest once faults stop, whatever happens in which order: no sequence of events without
// faults is endless, and where nothing is left that can happen, each bucket has an owner that works on it. To start a process is
// no duty: that holds without it too.
//
//go:norace
func (x *explored) settles() error {
	const (
		unseen = iota
		open
		closed
	)
	type frame struct {
		state int32
		next  []int32
	}
	mark := make([]uint8, len(x.states))
	for root := range x.states {
		if mark[root] != unseen {
			continue
		}
		stack := []frame{{state: int32(root)}}
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if mark[f.state] == unseen {
				mark[f.state] = open
				if f.next = x.after(f.state); x.rests[f.state] {
					if why := x.unsettled(x.states[f.state]); why != "" {
						return fmt.Errorf("nothing more happens, but %s:\n%s", why, x.trace(int(f.state)))
					}
				}
			}
			if len(f.next) == 0 {
				mark[f.state] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			to := f.next[len(f.next)-1]
			f.next = f.next[:len(f.next)-1]
			switch mark[to] {
			case unseen:
				stack = append(stack, frame{state: to})
			case open:
				circle := ""
				for _, f := range stack[slices.IndexFunc(stack, func(f frame) bool { return f.state == to }):] {
					circle += "\n    " + x.String(x.states[f.state])
				}
				return fmt.Errorf("this can go on for ever without a fault:%s\nafter:\n%s", circle, x.trace(int(to)))
			}
		}
	}
	return nil
}

// after returns what may follow on a state without a fault.
//
//go:norace
func (x *explored) after(n int32) []int32 {
	if n == 0 {
		return x.calm[:x.calmTo[0]]
	}
	return x.calm[x.calmTo[n-1]:x.calmTo[n]]
}

// unsettled says what is wrong with a state in which nothing more happens. If no process is left, nothing is.
//
//go:norace
func (m *model) unsettled(s state) string {
	table := m.tables.of(s.table)
	owned := map[string]set{}
	for b, owner := range table.Owner {
		owned[owner] = owned[owner].with(b)
	}
	for i, r := range s.replicas {
		switch self := name(i, int(r.slot)); {
		case r.up && (!r.valid || r.leaving || !table.Has(self)):
			return self + " takes no part"
		case r.up && r.runs != owned[self]:
			return self + " does not work on what it owns"
		case r.up:
			delete(owned, self)
		}
	}
	switch {
	case s.up() > 0 && len(owned) > 0:
		return "nobody works on a bucket"
	case s.up() > 0 && (len(table.Moving) > 0 || len(table.Sessions) != s.up()):
		return "a bucket is moving, or the dead are in the table"
	}
	return ""
}

//go:norace
func (s *state) up() (n int) {
	for _, r := range s.replicas {
		if r.up {
			n++
		}
	}
	return n
}
