package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// tableID is a table of the model, 0 for none.
type tableID uint16

// modelStart is the Gen and the epochs of all tables of the model: their growth is checked with each write, and then forgotten.
const modelStart = 1000

// tables knows each table once, and what follows from it.
type tables struct {
	all    []*Table
	ids    map[string]tableID
	writes map[wish]written
	names  [][len(orders) + modelReplicas]tableID
	// broken says which rule of a table a write has broken.
	broken string
}

type written struct {
	to  tableID
	err error
}

func newTables() *tables {
	return &tables{all: make([]*Table, 1), ids: map[string]tableID{}, writes: map[wish]written{}}
}

func (t *tables) of(id tableID) *Table { return t.all[id] }

// id knows a table by what it says. It is encoded and decoded on its way.
func (t *tables) id(table *Table) tableID {
	table.Gen = modelStart
	for b := range table.Epoch {
		table.Epoch[b] = modelStart
	}
	text, err := table.Encode()
	if err != nil {
		panic(err)
	}
	if id, ok := t.ids[text]; ok {
		return id
	}
	read, err := Decode(text)
	if err != nil {
		panic(err)
	}
	id := tableID(len(t.all))
	if int(id) < len(t.all) {
		panic("more tables than a tableID can tell apart")
	}
	t.all, t.ids[text] = append(t.all, read), id
	return id
}

// wish is a write that somebody may wish.
type wish struct {
	from tableID
	do   wanted
	// self writes, about other, or about a bucket.
	self, other which
	bucket      int8
	leaving     bool
	// live and drain are what a planner believes, as bits of the table's sessions.
	live, drain uint8
}

// which is a session of the model, 0 for none. It is small, as many wishes are looked up.
type which uint8

func (s which) String() string {
	if s == 0 {
		return ""
	}
	return name(int(s-1)/modelSlots, int(s-1)%modelSlots)
}

func whichOf(name string) which { return which(name[0]-'a')*modelSlots + which(name[1]-'0') + 1 }

type wanted uint8

const (
	toLeave wanted = iota
	toAcknowledge
	toJoin
	toPlan
	toBury
	toClaim
	toMove
	toCancel
)

func (w wish) String() string {
	switch w.do {
	case toJoin:
		return "join of " + w.other.String()
	case toLeave:
		return "leave"
	case toAcknowledge:
		return fmt.Sprintf("acknowledge bucket %d", w.bucket)
	case toPlan:
		return fmt.Sprintf("plan with %b of the sessions, of which %b drain", w.live, w.drain)
	case toBury:
		return "bury " + w.other.String()
	case toClaim, toMove, toCancel:
		return fmt.Sprintf("%s bucket %d for %q", [...]string{"claim", "move", "cancel the move of"}[w.do-toClaim], w.bucket, w.other.String())
	}
	return ""
}

// write returns the table that somebody wishes. Each is found out once.
//
//go:norace
func (m *model) write(w wish) (tableID, error) {
	t := m.tables
	done, ok := t.writes[w]
	if ok {
		return done.to, done.err
	}
	before := t.of(w.from)
	next := before.Next()
	if done.err = m.wish(next, w); done.err == nil {
		t.check(before, next)
		done.to = t.id(next)
	}
	t.writes[w] = done
	return done.to, done.err
}

// wish changes a table by the rules.
func (m *model) wish(t *Table, w wish) error {
	switch w.do {
	case toJoin:
		return t.Join(Member{Session: w.other.String()})
	case toLeave:
		return t.Leave(w.self.String())
	case toBury:
		return t.Bury(w.other.String())
	case toAcknowledge:
		if !slices.Contains(m.rules.due(t, w.self.String(), w.leaving), int(w.bucket)) {
			return fmt.Errorf("bucket %d is not due", w.bucket)
		}
		_, err := m.rules.acknowledge(t, int(w.bucket), w.self.String())
		return err
	case toClaim:
		return t.Claim(int(w.bucket), w.other.String())
	case toMove:
		return t.Move(int(w.bucket), w.other.String())
	case toCancel:
		return t.Cancel(int(w.bucket))
	case toPlan:
		in := Input{Weight: m.weight}
		for n, s := range t.Sessions {
			if w.live&(1<<n) != 0 {
				in.Replicas = append(in.Replicas, Replica{Session: s.Session, Draining: w.drain&(1<<n) != 0})
			}
		}
		planned, _ := m.rules.plan(t, in)
		*t = *planned
	}
	return nil
}

// check notes what a write must never do, whatever it is for.
func (t *tables) check(before, after *Table) {
	if !after.Newer(before) {
		t.broken = "a write made a table that is not newer"
	}
	for b, owner := range after.Owner {
		switch {
		case after.Epoch[b] < before.Epoch[b]:
			t.broken = fmt.Sprintf("the epoch of bucket %d fell", b)
		case owner != "" && owner != before.Owner[b] && after.Epoch[b] == before.Epoch[b]:
			t.broken = fmt.Sprintf("bucket %d has another owner of the same epoch", b)
		}
	}
}

// mention tells whether a session is in a table.
//
//go:norace
func (t *tables) mention(id tableID, i, slot int) bool { return id != 0 && t.of(id).Has(name(i, slot)) }

func (t *tables) describe(id tableID) string {
	table := t.of(id)
	var out strings.Builder
	for _, m := range table.Sessions {
		out.WriteString(m.Session + ",")
	}
	for b, owner := range table.Owner {
		fmt.Fprintf(&out, " %d:%s", b, owner)
		if to, moving := table.Moving[b]; moving {
			out.WriteString("->" + to)
		}
	}
	return "(" + out.String() + ")"
}

// write has what a replica may write. If its session is not valid, it joins nothing and plans nothing: it would join again what has
// buried it, and so on, for as long as it does not hear of that.
//
//go:norace
func (e *events) write(i int) {
	r := e.from.replicas[i]
	self, table := e.self(i), e.tables.of(e.from.table)
	if !table.Has(self) {
		switch {
		case r.leaving:
			to := e.from
			to.lose(i, int(r.slot))
			to.end(i)
			e.add(free, to, "%s deletes its Lease and ends", self)
		case !r.joined && r.valid:
			e.change(i, free, wish{do: toJoin, other: whichOf(self)})
		}
		return
	}
	if r.leaving {
		e.change(i, free, wish{do: toLeave})
	}
	e.acknowledge(i)
	if !r.valid {
		return // It may be dead and buried.
	}
	if e.rules.mad {
		e.anything(i)
	} else {
		e.plan(i)
	}
	e.others(i)
}

// acknowledge gives up what is due and drained, one bucket at a time: two at once are one after the other.
//
//go:norace
func (e *events) acknowledge(i int) {
	r := e.from.replicas[i]
	for b := range modelBuckets {
		if e.rules.drains && r.runs.has(b) {
			continue
		}
		e.change(i, free, wish{do: toAcknowledge, bucket: int8(b), leaving: r.leaving})
	}
}

// plan writes what a planner wants that believes anything of who lives.
//
//go:norace
func (e *events) plan(i int) {
	members := e.tables.of(e.from.table).Sessions
	truth, drain := uint8(0), uint8(0)
	for n, s := range members {
		if e.from.drains(s.Session) {
			drain |= 1 << n
		}
		if e.from.lives(s.Session) {
			truth |= 1 << n
		}
	}
	e.change(i, free, wish{do: toPlan, live: truth, drain: truth & drain})
	if e.from.faults == 0 {
		return
	}
	for live := range uint8(1) << len(members) {
		e.change(i, fault, wish{do: toPlan, live: live, drain: live & drain})
	}
}

// anything writes whatever a planner could get wrong.
func (e *events) anything(i int) {
	for b := range modelBuckets {
		e.change(i, free, wish{do: toCancel, bucket: int8(b)})
		for _, s := range e.tables.of(e.from.table).Sessions {
			e.change(i, free, wish{do: toClaim, bucket: int8(b), other: whichOf(s.Session)})
			e.change(i, free, wish{do: toMove, bucket: int8(b), other: whichOf(s.Session)})
		}
	}
}

// lives tells whether a session's Lease is held, and renewed.
//
//go:norace
func (s *state) lives(session string) bool {
	for i := range s.sessions {
		for slot, l := range s.sessions[i] {
			if name(i, slot) == session {
				return l.is == held && !l.silent
			}
		}
	}
	return false
}

// drains tells whether the process of a session is about to end.
//
//go:norace
func (s *state) drains(session string) bool {
	for i, r := range s.replicas {
		if r.up && r.leaving && name(i, int(r.slot)) == session {
			return true
		}
	}
	return false
}

// others lets join, fences and buries. Who lets a session join that has ended, or is about to, has an old view.
//
//go:norace
func (e *events) others(i int) {
	self := e.self(i)
	for n := range e.from.sessions {
		for slot, l := range e.from.sessions[n] {
			other := name(n, slot)
			if other == self || l.is == unknown {
				continue
			}
			cost := uint8(free)
			if !e.from.lives(other) || e.from.drains(other) {
				cost = fault
			}
			e.change(i, cost, wish{do: toJoin, other: whichOf(other)})
			switch e.judge(l, other) {
			case Wait:
			case Fence:
				to := e.from
				to.lose(n, slot)
				e.add(free, to, "%s fences %s", self, other)
			case Bury:
				e.change(i, free, wish{do: toBury, other: whichOf(other)})
			}
		}
	}
}

//go:norace
func (m *model) judge(l lease, session string) Verdict {
	holder := session
	if l.is == gone {
		holder = ""
	}
	return m.rules.judge(session, true, holder, l.silent)
}

// change writes the table as a replica has just read it: the write is applied, whether its answer comes or not, or is slow.
//
//go:norace
func (e *events) change(i int, cost uint8, w wish) {
	w.from = e.from.table
	if w.do < toJoin { // The others are the same, whoever writes them.
		w.self = whichOf(e.self(i))
	}
	table, err := e.model.write(w)
	if err != nil || table == e.from.table {
		return
	}
	seen := e.from
	if e.refresh(&seen, i); !seen.replicas[i].up {
		return // It has read that it is over.
	}
	e.add(cost, e.applied(seen, table), "%s writes: %v", e.self(i), w)
	if seen.replicas[i].late == 0 {
		seen.replicas[i].late = table
		e.add(cost+fault, seen, "%s writes, which is slow: %v", e.self(i), w)
	}
}

// applied is the state once the hub has another table. What was on its way is refused then.
//
//go:norace
func (m *model) applied(s state, table tableID) state {
	s.table = table
	for i := range s.replicas {
		if m.rules.swaps || s.replicas[i].late == table {
			s.replicas[i].late = 0
		}
	}
	return s
}

// writeArrives applies a write that was on its way.
func (e *events) writeArrives(i int) {
	if late := e.from.replicas[i].late; late != 0 {
		e.add(free, e.applied(e.from, late), "a slow write of replica %c is applied", 'a'+i)
	}
}
