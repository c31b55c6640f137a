package mcmanager

import (
	"cmp"
	"html/template"
	"maps"
	"slices"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

const (
	// mostRows is how many members the page shows, and mostProblems how many problems. The JSON has all.
	mostRows, mostProblems = 1000, 100
	// mostLabels is how many labels of a member the page shows, and mostKinds how many kinds that are not synced.
	mostLabels, mostKinds = 8, 8
	// soon is how long before their end the page shows that credentials expire.
	soon = 30 * 24 * time.Hour
)

// table is what the page shows to people.
type table struct {
	Time     time.Time
	Role     role
	Sharding *sharding.Status // nil if no others share the members
	Counts   []count
	Filter   filter
	Choices  []string
	Problems []fleet.Problem
	// MoreProblems and MoreRows are how many the filter lets through beyond those that are shown.
	MoreProblems, MoreRows int
	// Common are the labels that all members have. They tell none from another.
	Common []label
	// All is how many members there are, of which Matching pass the filter.
	All, Matching int
	Filtered      bool
	Rows          []tableRow
}

// count is how many members there are of a state.
type count struct {
	State string
	Query template.URL
	N     int
}

type label struct{ Name, Value string }

type tableRow struct {
	fleet.Status
	// Apart are the labels that not all members have; MoreLabels is how many more there are.
	Apart      []label
	MoreLabels int
	MoreKinds  int // that are not synced, beyond those in NotSynced
	// Queues has the figures of the member by controller, where there is work.
	Queues map[string]mcqueue.Stats
}

// newTable makes a table of all members and problems.
func newTable(all []fleet.Status, problems []fleet.Problem, chosen filter) table {
	t := table{Filter: chosen, Choices: choices(), All: len(all), Counts: counts(all, chosen)}
	t.Problems, t.MoreProblems = first(chosen.problems(problems), mostProblems)
	common := commonLabels(all)
	t.Common = sorted(common)
	passed := chosen.members(all)
	t.Matching, t.Filtered = len(passed), chosen.State != "" || len(chosen.words) > 0
	slices.SortStableFunc(passed, func(a, b fleet.Status) int { return cmp.Compare(badness(b), badness(a)) })
	passed, t.MoreRows = first(passed, mostRows)
	t.Rows = make([]tableRow, len(passed))
	for i, status := range passed {
		row := tableRow{Status: status}
		row.Apart, row.MoreLabels = first(apart(status.Labels, common), mostLabels)
		row.NotSynced, row.MoreKinds = first(status.NotSynced, mostKinds)
		t.Rows[i] = row
	}
	return t
}

// first returns the first of a list, and how many more there are.
func first[T any](list []T, most int) (shown []T, more int) {
	if len(list) <= most {
		return list, 0
	}
	return list[:most], len(list) - most
}

// badness is more for members that are to be shown before others.
func badness(s fleet.Status) int {
	switch {
	case s.State == fleet.Unreachable:
		return 6
	case s.State == fleet.Connecting:
		return 5
	case s.State == fleet.Pending:
		return 4
	case s.State == fleet.Ready && (s.Reason != "" || len(s.NotSynced) > 0):
		return 3
	case s.State == fleet.NotOwned:
		return -1
	case s.State != fleet.Ready, s.Leaving: // as it should
		return 2
	case len(s.Duplicates) > 0:
		return 1
	default:
		return 0
	}
}

func countStates(list []fleet.Status) map[fleet.State]int {
	states := map[fleet.State]int{}
	for _, status := range list {
		states[status.State]++
	}
	return states
}

// counts returns how many members of each state there are, leaving out those without, and how many have kinds that are not
// synced.
func counts(list []fleet.Status, chosen filter) []count {
	var all []count
	add := func(state string, n int) {
		if n > 0 {
			all = append(all, count{State: state, Query: chosen.Query(state), N: n})
		}
	}
	states := countStates(list)
	for _, state := range worstFirst() {
		add(string(state), states[state])
		delete(states, state)
	}
	for _, state := range slices.Sorted(maps.Keys(states)) {
		add(string(state), states[state])
	}
	add(notSynced, len(filter{State: notSynced}.members(list)))
	return all
}

// commonLabels returns the labels that all members have with the same value.
func commonLabels(list []fleet.Status) map[string]string {
	if len(list) == 0 {
		return nil
	}
	common := maps.Clone(list[0].Labels)
	for _, status := range list[1:] {
		maps.DeleteFunc(common, func(name, value string) bool {
			other, ok := status.Labels[name]
			return !ok || other != value
		})
	}
	return common
}

// apart returns the labels of a member that are not common to all.
func apart(labels, common map[string]string) []label {
	own := maps.Clone(labels)
	maps.DeleteFunc(own, func(name, _ string) bool {
		_, ok := common[name]
		return ok
	})
	return sorted(own)
}

func sorted(labels map[string]string) []label {
	list := make([]label, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, label{name, labels[name]})
	}
	return list
}

// busy returns the queues that have something to do, or are paused.
func busy(queues map[string]mcqueue.Stats) map[string]mcqueue.Stats {
	maps.DeleteFunc(queues, func(_ string, q mcqueue.Stats) bool { return q == mcqueue.Stats{} })
	return queues
}
