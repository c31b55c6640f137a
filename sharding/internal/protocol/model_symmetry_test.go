package protocol

import "slices"

// canonical returns the state that stands for all that differ from s only in how the replicas and their sessions are called: no rule
// looks at names.
//
//go:norace
func (t *tables) canonical(s state) state {
	for i, r := range s.replicas {
		other := !r.up && s.sessions[i][0].is == unknown && s.sessions[i][1].is != unknown
		if r.up && r.slot == 1 || other {
			s = t.rename(s, swapSlots+i)
		}
	}
	var keys [modelReplicas]uint64
	for i := range keys {
		keys[i] = s.key(i)
	}
	best, found := state{}, false
	for n, order := range orders {
		var sorted [modelReplicas]uint64
		for i, to := range order {
			sorted[to] = keys[i]
		}
		if !slices.IsSorted(sorted[:]) {
			continue
		}
		if renamed := t.rename(s, n); !found || renamed.tablesBefore(best) {
			best, found = renamed, true
		}
	}
	return best
}

// tablesBefore orders states that differ in tables alone.
//
//go:norace
func (s *state) tablesBefore(than state) bool {
	if s.table != than.table {
		return s.table < than.table
	}
	for i, r := range s.replicas {
		if late := than.replicas[i].late; r.late != late {
			return r.late < late
		}
	}
	return false
}

// The ways to rename: all orders of the replicas, and to swap the sessions of one.
var orders = [...][modelReplicas]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

const swapSlots = len(orders)

// rename calls replicas or sessions otherwise.
//
//go:norace
func (t *tables) rename(s state, way int) state {
	to := s
	to.table = t.renamed(s.table, way)
	for i := range s.replicas {
		if way < swapSlots {
			n := orders[way][i]
			to.replicas[n], to.sessions[n] = s.replicas[i], s.sessions[i]
		} else if i == way-swapSlots {
			to.sessions[i][0], to.sessions[i][1] = s.sessions[i][1], s.sessions[i][0]
			to.replicas[i].slot = 1 - s.replicas[i].slot
		}
	}
	for i := range to.replicas {
		to.replicas[i].late = t.renamed(to.replicas[i].late, way)
		if !to.replicas[i].up {
			to.replicas[i].slot = 0
		}
	}
	return to
}

// renamed returns the table with other names.
//
//go:norace
func (t *tables) renamed(id tableID, way int) tableID {
	if id == 0 || way == 0 {
		return id
	}
	for len(t.names) <= int(id) {
		t.names = append(t.names, [len(orders) + modelReplicas]tableID{})
	}
	if t.names[id][way] == 0 {
		table := t.of(id).Clone()
		names := map[string]string{}
		for i := range modelReplicas {
			for slot := range modelSlots {
				names[name(i, slot)] = rename(i, slot, way)
			}
		}
		for n := range table.Sessions {
			table.Sessions[n].Session = names[table.Sessions[n].Session]
		}
		for b := range table.Owner {
			table.Owner[b] = names[table.Owner[b]]
			if to, moving := table.Moving[b]; moving {
				table.Moving[b] = names[to]
			}
		}
		renamed := t.id(table)
		t.names[id][way] = renamed
	}
	return t.names[id][way]
}

func rename(i, slot, way int) string {
	switch {
	case way < swapSlots:
		return name(orders[way][i], slot)
	case way-swapSlots == i:
		return name(i, 1-slot)
	default:
		return name(i, slot)
	}
}

// key has all of a replica but for its table.
//
//go:norace
func (s *state) key(i int) uint64 {
	r := s.replicas[i]
	key := uint64(r.holds) | uint64(r.runs)<<2 | uint64(r.held)<<4
	flags := []bool{r.up, r.leaving, r.valid, r.joined, r.late != 0, s.sessions[i][0].silent, s.sessions[i][1].silent}
	for n, flag := range flags {
		if flag {
			key |= 1 << (8 + n)
		}
	}
	for slot, l := range s.sessions[i] {
		key |= (uint64(l.is) | uint64(l.renewal)<<2) << (16 + 8*slot)
	}
	return key
}
