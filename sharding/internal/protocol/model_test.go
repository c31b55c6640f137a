package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// The model: three replicas share two buckets. A state is what the hub has, what each replica does, and what is on its way
// between them. Whatever a replica decides, the functions of this package decide, by way of rules. Everything happens in any
// order: a replica that is paused is one that is not chosen for a while.
//
// What is abstract in it, and why nothing is lost:
//
//   - Time is one event per session, lapse: V has passed since what the session's validity counts from, and D since its last
//     renewal. That V is over before D is what the timing promises, and all that is assumed of clocks.
//   - A replica's view of the table is how it decides what to work on: for each bucket, whether the table lets it. It is
//     brought up to date by refresh, at any time or never, and before a write, which else would be refused. To see an older
//     table late is to see it in time and to act on it late.
//   - A write of the table that is applied at once, and of which the answer is lost, is a write without a refresh. One that
//     is on its way is kept, and may be applied until another is. That its sender does something else meanwhile, ends, or is
//     fenced, is another event.
//   - A fence that is on its way is a fence that is sent later: silence that was broken refuses it, silence that was not
//     does no harm.
//   - A planner believes of each session that it lives, or that it does not, whichever is true.
//
// One goroutine explores it, so the race detector has nothing to find. What is marked with norace takes half the time without it.
const (
	modelReplicas = 3
	modelBuckets  = 2
	modelSlots    = 2 // Sessions per replica: that of its process, and one that is not yet forgotten.
)

// state is one of the model. It is a key of maps.
type state struct {
	table    tableID
	replicas [modelReplicas]replica
	sessions [modelReplicas][modelSlots]lease
	faults   uint8 // How many may still happen.
}

// replica is a process, or the lack of one.
type replica struct {
	up, leaving bool
	// valid says that V has not passed since what the session's validity counts from.
	valid bool
	// joined says that the session has seen itself in the table.
	joined bool
	slot   uint8
	// holds is its view: the buckets that it may work on. runs has those that it works on.
	holds, runs set
	// held has the buckets that it was allowed to work on at any time. It is kept if views may go back.
	held set
	// late is the table as a write of this replica would make it, if that is still applied.
	late tableID
}

// set has buckets as bits.
type set uint8

func (s set) has(b int) bool   { return s&(1<<b) != 0 }
func (s set) with(b int) set   { return s | 1<<b }
func (s set) except(b int) set { return s &^ (1 << b) }

// lease is a session as the hub knows it.
type lease struct {
	is leaseState
	// silent says that D has passed since the last renewal was applied.
	silent bool
	// renewal is one that is slow. Quick ones are one event.
	renewal renewal
}

type leaseState uint8

const (
	unknown leaseState = iota // There is no such session, and nothing speaks of it.
	held                      // It has a Lease.
	gone                      // The Lease was fenced, or deleted.
)

type renewal uint8

const (
	noRenewal renewal = iota
	sentNow           // On its way to the hub, and V has not passed since.
	sentLongAgo
	doneNow // Applied, with the answer on its way, and V has not passed since it was sent.
	doneLongAgo
)

// rules are how the replicas decide. Each is that of the package, unless a mutant has another.
type rules struct {
	judge       func(session string, found bool, holder string, silent bool) Verdict
	newer       func(t, than *Table) bool
	holds       func(t *Table, session string, b int) bool
	due         func(t *Table, session string, leaving bool) []int
	acknowledge func(t *Table, b int, by string) (string, error)
	plan        func(t *Table, in Input) (*Table, []Step)
	// What package sharding does, and not this one: a tenure ends before it is acknowledged, validity counts from before the
	// renewal was sent, a session that was lost is over, and writes are refused if the table is another than was read.
	drains, countsFromSending, ends, swaps bool
	// mad planners write anything that a table allows.
	mad bool
}

func realRules() rules {
	return rules{
		judge: Judge, newer: (*Table).Newer, holds: (*Table).Holds, due: (*Table).Due, acknowledge: (*Table).Acknowledge, plan: Plan,
		drains: true, countsFromSending: true, ends: true, swaps: true,
	}
}

// model explores under rules, with so many faults.
type model struct {
	rules    rules
	replicas int // Of modelReplicas, those that start at all.
	faults   uint8
	weight   []int64
	tables   *tables
}

// fault is what an event costs of the faults that may happen.
const (
	free  = 0
	fault = 1
)

// event is what may happen next.
type event struct {
	name string // Only if it is asked for.
	to   state
}

// events collects them.
type events struct {
	*model
	from  state
	named bool
	all   []event
}

func (m *model) first() state {
	return state{table: m.tables.id(New(modelBuckets, modelStart)), faults: m.faults}
}

// next returns what may happen in a state. The array of reuse is taken for it.
//
//go:norace
func (m *model) next(from state, named bool, reuse []event) []event {
	e := &events{model: m, from: from, named: named, all: reuse[:0]}
	for i := range from.replicas {
		e.writeArrives(i)
		switch {
		case from.replicas[i].up:
			e.process(i)
		case from.up() < m.replicas:
			e.start(i)
		}
		for slot := range from.sessions[i] {
			e.session(i, slot)
		}
	}
	return e.all
}

//go:norace
func (e *events) add(cost uint8, to state, name string, args ...any) {
	if cost > e.from.faults {
		return
	}
	to.faults -= cost
	if to = e.tables.canonical(e.forget(to)); to != e.from {
		next := event{to: to}
		if e.named {
			next.name = fmt.Sprintf(name, args...)
		}
		e.all = append(e.all, next)
	}
}

// forget frees the places of sessions that nothing speaks of any more.
//
//go:norace
func (m *model) forget(s state) state {
	for i := range s.sessions {
		for slot, l := range s.sessions[i] {
			current := s.replicas[i].up && int(s.replicas[i].slot) == slot
			if current || l.is != gone || !l.silent || l.renewal != noRenewal || m.tables.mention(s.table, i, slot) {
				continue
			}
			if !slices.ContainsFunc(s.replicas[:], func(r replica) bool { return m.tables.mention(r.late, i, slot) }) {
				s.sessions[i][slot] = lease{}
			}
		}
	}
	return s
}

// start begins a process, with a session of its own.
func (e *events) start(i int) {
	for slot, l := range e.from.sessions[i] {
		if l.is == unknown {
			to := e.from
			to.sessions[i][slot] = lease{is: held}
			to.replicas[i] = replica{up: true, valid: true, slot: uint8(slot), late: to.replicas[i].late}
			e.add(free, to, "%s starts", name(i, slot))
			return
		}
	}
}

// session has what happens to a Lease, whatever its replica does.
//
//go:norace
func (e *events) session(i, slot int) {
	l := e.from.sessions[i][slot]
	if l.is == unknown {
		return
	}
	to := e.from
	to.lapse(i, slot)
	if e.from.works(i, slot) {
		e.add(fault, to, "%s is paused, or does not reach the hub, for longer than its Lease lasts", name(i, slot))
	} else {
		e.add(free, to, "time passes for %s", name(i, slot))
	}
	if l.is != held {
		return
	}
	to = e.from
	to.lose(i, slot)
	e.add(fault, to, "a stranger deletes the Lease of %s", name(i, slot))
	if l.renewal == sentNow || l.renewal == sentLongAgo {
		to = e.from
		to.sessions[i][slot] = lease{is: held, renewal: l.renewal + doneNow - sentNow}
		e.add(free, to, "the renewal of %s is applied", name(i, slot))
	}
}

// works tells whether a session has a Lease and a process that renews it.
//
//go:norace
func (s *state) works(i, slot int) bool {
	return s.replicas[i].up && int(s.replicas[i].slot) == slot && s.sessions[i][slot].is == held
}

// lapse says that V has passed for a session, and D.
//
//go:norace
func (s *state) lapse(i, slot int) {
	l := &s.sessions[i][slot]
	l.silent = true
	if l.renewal == sentNow || l.renewal == doneNow {
		l.renewal++
	}
	if s.replicas[i].up && int(s.replicas[i].slot) == slot {
		s.replicas[i].valid = false
	}
}

// lose says that the Lease of a session is fenced, or gone. Renewals that were not applied never are.
//
//go:norace
func (s *state) lose(i, slot int) {
	l := &s.sessions[i][slot]
	l.is = gone
	if l.renewal == sentNow || l.renewal == sentLongAgo {
		l.renewal = noRenewal
	}
}

// end ends the process of a replica, or its session, which comes to the same: what comes then is another session.
//
//go:norace
func (s *state) end(i int) {
	r := s.replicas[i]
	s.replicas[i] = replica{late: r.late}
	if l := &s.sessions[i][r.slot]; l.renewal == doneNow || l.renewal == doneLongAgo {
		l.renewal = noRenewal
	}
}

// process has what a replica does.
//
//go:norace
func (e *events) process(i int) {
	to := e.from
	to.end(i)
	e.add(fault, to, "%s is killed", e.self(i))
	if !e.from.replicas[i].leaving {
		to = e.from
		to.replicas[i].leaving = true
		e.add(fault, to, "%s is to end", e.self(i))
	}
	e.renew(i)
	e.see(i)
	e.work(i)
	e.write(i)
}

// renew has what a replica does with its own Lease.
//
//go:norace
func (e *events) renew(i int) {
	r := e.from.replicas[i]
	l := e.from.sessions[i][r.slot]
	if l.renewal == doneNow || l.renewal == doneLongAgo {
		to := e.from
		to.sessions[i][r.slot].renewal = noRenewal
		to.replicas[i].valid = r.valid || l.renewal == doneNow || !e.rules.countsFromSending
		e.add(free, to, "%s hears that its renewal was applied", e.self(i))
	}
	if l.is == gone {
		to := e.from
		if to.end(i); !e.rules.ends {
			to.replicas[i] = e.from.replicas[i]
			to.replicas[i].valid = true
		}
		e.add(free, to, "%s hears that its Lease is gone", e.self(i))
		return
	}
	to := e.from
	to.replicas[i].valid = true
	to.sessions[i][r.slot].silent = false
	if l.renewal == sentNow || l.renewal == sentLongAgo {
		to.sessions[i][r.slot].renewal = noRenewal // It finds another version.
	}
	e.add(free, to, "%s renews", e.self(i))
	if l.renewal == noRenewal {
		to = e.from
		to.sessions[i][r.slot].renewal = sentNow
		e.add(fault, to, "%s sends a renewal, which is slow", e.self(i))
	}
}

// see brings the view of a replica up to date.
//
//go:norace
func (e *events) see(i int) {
	to := e.from
	e.refresh(&to, i)
	e.add(free, to, "%s sees the table", e.self(i))
	if e.viewsGoBack() && e.from.replicas[i].joined {
		to = e.from
		to.replicas[i].holds = to.replicas[i].held
		e.add(free, to, "%s sees an older table", e.self(i))
	}
}

func (m *model) viewsGoBack() bool { return m.rules.newer(&Table{Gen: 1}, &Table{Gen: 2}) }

// refresh makes the view of a replica that of the hub. A session that is in the table no more is over.
//
//go:norace
func (m *model) refresh(s *state, i int) {
	r := &s.replicas[i]
	table, self := m.tables.of(s.table), name(i, int(r.slot))
	if !table.Has(self) {
		if r.joined && m.rules.ends {
			s.end(i)
		}
		return
	}
	r.joined, r.holds = true, 0
	for b := range modelBuckets {
		if m.rules.holds(table, self, b) {
			r.holds = r.holds.with(b)
		}
	}
	if m.viewsGoBack() {
		r.held |= r.holds
	}
}

// work begins and ends tenures, by the view alone.
//
//go:norace
func (e *events) work(i int) {
	r := e.from.replicas[i]
	for b := range modelBuckets {
		to := e.from
		switch {
		case !r.runs.has(b) && r.holds.has(b) && r.valid && !r.leaving:
			to.replicas[i].runs = r.runs.with(b)
			e.add(free, to, "%s begins to work on bucket %d", e.self(i), b)
		case r.runs.has(b) && (!r.holds.has(b) || r.leaving):
			to.replicas[i].runs = r.runs.except(b)
			e.add(free, to, "%s has drained bucket %d", e.self(i), b)
		}
	}
}

func (e *events) self(i int) string { return name(i, int(e.from.replicas[i].slot)) }

func name(i, slot int) string { return "a0a1b0b1c0c1"[4*i+2*slot:][:2] }

// String shows a state in one line.
func (m *model) String(s state) string {
	var out strings.Builder
	fmt.Fprintf(&out, "table %s", m.tables.describe(s.table))
	for i, r := range s.replicas {
		if r.up {
			fmt.Fprintf(&out, " | %s valid=%t leaving=%t joined=%t holds=%02b runs=%02b", name(i, int(r.slot)), r.valid, r.leaving, r.joined, r.holds, r.runs)
		}
		if r.late != 0 {
			fmt.Fprintf(&out, " late=%s", m.tables.describe(r.late))
		}
		for slot, l := range s.sessions[i] {
			if l.is != unknown {
				fmt.Fprintf(&out, " [%s %s silent=%t renewal=%d]", name(i, slot), [...]string{"", "held", "gone"}[l.is], l.silent, l.renewal)
			}
		}
	}
	return out.String()
}

// writers returns a bucket that two replicas may write to.
//
//go:norace
func (s *state) writers() (bucket int, found bool) {
	var once, twice set
	for _, r := range s.replicas {
		if r.up && r.valid {
			twice |= once & r.runs
			once |= r.runs
		}
	}
	for b := range modelBuckets {
		if twice.has(b) {
			return b, true
		}
	}
	return 0, false
}
