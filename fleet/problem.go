package fleet

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Problem is something that keeps a provider from discovering, and that no member can show: an object that describes
// none, a name that another object has, a missing right. Provider, About and Member together say which problem it is.
type Problem struct {
	// Provider is the name of the provider that has the problem, such as "kubeconfig".
	Provider string `json:"provider"`
	// About is what the problem is about, such as "Secret fleet/east".
	About string `json:"about"`
	// Member is the name that is not reported for it, if the problem is about one.
	Member ClusterName `json:"member,omitempty"`
	// Reason is one CamelCase word. It is a label of a metric, so there must be few different ones.
	Reason string `json:"reason"`
	// Message is the reason in full, and what to do. It must carry no secrets.
	Message string `json:"message,omitempty"`
	// Since is when the problem began to have this reason. The fleet sets it.
	Since time.Time `json:"since"`
}

const (
	// mostProblems is how many problems are kept with their text, and logged. Those beyond are counted.
	mostProblems = 2000
	// mostProblemSeries is how many metric series problems have.
	mostProblemSeries = 100
	// maxProvider, maxAbout and maxReason are as much of a text as is kept, in bytes. Objects have names of 317.
	maxProvider, maxAbout, maxReason = 100, 400, 64
)

// ReasonTooManyProblems is for the [Problem] that stands for those that are not kept.
const ReasonTooManyProblems = "TooManyProblems"

// ReasonOf returns the reason that stands for an error of a request to a cluster, such as [ReasonForbidden] or
// [ReasonRefused], and "" for nil. An error with a method Reason() string says its own.
func ReasonOf(err error) string { return classify(err) }

// Problems returns what keeps providers from discovering, ordered by provider, subject and member. Of very many, the last
// entry says how many more there are.
func (f *Fleet) Problems() []Problem { return f.problems.list() }

// problems keeps the problems of a fleet. The zero value is empty.
type problems struct {
	mu     sync.Mutex         // guards what follows
	kept   map[uint64]Problem // by what id returns
	beyond map[uint64]problemSeries
	since  time.Time // when beyond began to have some
	counts map[problemSeries]int
}

// problemSeries are the labels of a series.
type problemSeries struct{ provider, reason string }

func (p Problem) series() problemSeries { return problemSeries{p.Provider, p.Reason} }

var problemSeed = maphash.MakeSeed()

// id tells problems apart by what they are about in full, of which only some is kept.
func (p Problem) id() uint64 {
	return maphash.Comparable(problemSeed, [...]string{p.Provider, p.About, string(p.Member)})
}

// shown returns the problem with text that is fit to be shown.
func (p Problem) shown() Problem {
	p.Provider, p.About = oneline.Text(p.Provider, maxProvider), oneline.Text(p.About, maxAbout)
	p.Member = ClusterName(oneline.Text(string(p.Member), MaxNameLength))
	p.Reason, p.Message = oneline.Text(p.Reason, maxReason), oneline.Text(p.Message, maxMessage)
	return p
}

// set notes what holds now, and logs the problem if it begins or ends with that.
func (ps *problems) set(log logr.Logger, p Problem) {
	id := p.id()
	p = p.shown()
	p.Since = time.Now()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	before, kept := ps.kept[id]
	switch {
	case p.Reason == "":
		ps.dropLocked(id)
		if kept {
			log.Info("Discovery: a problem has ended", before.logged()...)
		}
	case kept && before.Reason == p.Reason:
		p.Since = before.Since
		ps.kept[id] = p
	case kept || len(ps.kept) < mostProblems:
		ps.dropLocked(id)
		ps.keepLocked(id, p)
		log.Info("Discovery: there is a problem", append(p.logged(), "message", p.Message)...)
	default:
		ps.dropLocked(id)
		ps.countLocked(id, p)
	}
}

func (p Problem) logged() []any {
	values := []any{"provider", p.Provider, "about", p.About, "reason", p.Reason}
	if p.Member != "" {
		values = append(values, "cluster", p.Member)
	}
	return values
}

func (ps *problems) keepLocked(id uint64, p Problem) {
	if ps.kept == nil {
		ps.kept, ps.counts = map[uint64]Problem{}, map[problemSeries]int{}
	}
	ps.kept[id] = p
	ps.counts[p.series()]++
}

func (ps *problems) countLocked(id uint64, p Problem) {
	if len(ps.beyond) == 0 {
		ps.beyond, ps.since = map[uint64]problemSeries{}, p.Since
	}
	ps.beyond[id] = p.series()
	ps.counts[p.series()]++
}

func (ps *problems) dropLocked(id uint64) {
	series, counted := ps.beyond[id]
	if p, ok := ps.kept[id]; ok {
		series, counted = p.series(), true
	}
	if !counted {
		return
	}
	delete(ps.kept, id)
	delete(ps.beyond, id)
	if ps.counts[series]--; ps.counts[series] == 0 {
		delete(ps.counts, series)
	}
}

func (ps *problems) list() []Problem {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	list := slices.AppendSeq(make([]Problem, 0, len(ps.kept)+1), maps.Values(ps.kept))
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.About, b.About), cmp.Compare(a.Member, b.Member))
	})
	if more := len(ps.beyond); more > 0 {
		list = append(list, Problem{
			Provider: fleetItself, About: "problems", Reason: ReasonTooManyProblems, Since: ps.since,
			Message: fmt.Sprintf("%d more problems are not shown; the metric counts them", more),
		})
	}
	return list
}

// fleetItself is the provider of problems that the fleet has.
const fleetItself = "fleet"

// figures returns how many problems there are. Beyond the most series, they are summed.
func (ps *problems) figures() map[problemSeries]int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	figures := maps.Clone(ps.counts)
	if len(figures) <= mostProblemSeries {
		return figures
	}
	all := slices.SortedFunc(maps.Keys(figures), func(a, b problemSeries) int {
		return cmp.Or(cmp.Compare(a.provider, b.provider), cmp.Compare(a.reason, b.reason))
	})
	sum := 0
	for _, series := range all[mostProblemSeries-1:] {
		sum += figures[series]
		delete(figures, series)
	}
	figures[problemSeries{otherMembers, otherMembers}] = sum
	return figures
}
