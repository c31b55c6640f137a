package providertest

import (
	"fmt"
	"maps"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// members is a [fleet.Members] that keeps what a provider reports.
type members struct {
	mu       sync.Mutex // guards what follows
	news     chan struct{}
	now      map[fleet.ClusterName]fleet.Member
	calls    []call
	refused  map[fleet.ClusterName]error         // what Set returns
	held     map[fleet.ClusterName]chan struct{} // what Remove returns
	leaving  map[fleet.ClusterName]chan struct{} // what Leave returns, of members that leave or have left
	problems []fleet.Problem                     // as they were reported, those that end with them
}

// call is one call of a method.
type call struct {
	removal bool
	leaves  bool
	member  fleet.Member // the name alone, of a removal
	given   *rest.Config // of which member.Config is a copy
	err     error
}

func (c call) String() string {
	what := fmt.Sprintf("Set(%q, %s)", c.member.Name, contents(c.member))
	switch {
	case c.removal:
		what = fmt.Sprintf("Remove(%q)", c.member.Name)
	case c.leaves:
		what = fmt.Sprintf("Leave(%q, %s)", c.member.Name, contents(c.member))
	}
	if c.err != nil {
		what += fmt.Sprintf(" = %v", c.err)
	}
	return what
}

// contents is what a member has, without credentials.
func contents(m fleet.Member) string {
	switch {
	case m.Err != nil:
		return fmt.Sprintf("Err %q", m.Err)
	case m.Config != nil:
		return fmt.Sprintf("Config of %s, Revision %q, Labels %v", m.Config.Host, m.Revision, m.Labels)
	case m.Load != nil:
		return fmt.Sprintf("Load of a config that is outdated, Revision %q, Labels %v", m.Revision, m.Labels)
	default:
		return fmt.Sprintf("Cluster %T, Labels %v", m.Cluster, m.Labels)
	}
}

func newMembers() *members {
	return &members{
		news:    make(chan struct{}),
		now:     map[fleet.ClusterName]fleet.Member{},
		refused: map[fleet.ClusterName]error{},
		held:    map[fleet.ClusterName]chan struct{}{},
		leaving: map[fleet.ClusterName]chan struct{}{},
	}
}

// Set implements [fleet.Members].
func (ms *members) Set(m fleet.Member) error {
	return ms.report(m, func() { delete(ms.leaving, m.Name) }, false)
}

// Leave implements [fleet.Members]. The member stays one until letLeave is called.
func (ms *members) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	err = ms.report(m, func() {
		if ms.leaving[m.Name] == nil {
			ms.leaving[m.Name] = make(chan struct{})
		}
		left = ms.leaving[m.Name]
		select {
		case <-left:
			delete(ms.now, m.Name)
		default:
		}
	}, true)
	return left, err
}

// letLeave lets a member have left that is about to.
func (ms *members) letLeave(name fleet.ClusterName) {
	ms.change(func() {
		close(ms.leaving[name])
		delete(ms.now, name)
	})
}

// report keeps what is reported. If it is accepted, then is called while nothing else changes.
func (ms *members) report(m fleet.Member, then func(), leaves bool) error {
	err := m.Validate()
	if err == nil {
		if loaded, err := m.Loaded(); err == nil { // or another description follows
			m = loaded
		}
	}
	given := m.Config
	m.Labels = maps.Clone(m.Labels)
	if given != nil {
		m.Config = rest.CopyConfig(given)
	}
	ms.change(func() {
		if err == nil {
			err = ms.refused[m.Name]
		}
		if err == nil {
			ms.now[m.Name] = m
			then()
		}
		ms.calls = append(ms.calls, call{leaves: leaves, member: m, given: given, err: err})
	})
	return err
}

// Remove implements [fleet.Members].
func (ms *members) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	over := make(chan struct{})
	ms.change(func() {
		delete(ms.now, name)
		delete(ms.leaving, name)
		ms.calls = append(ms.calls, call{removal: true, member: fleet.Member{Name: name}})
		held := ms.held[name]
		if held == nil {
			close(over)
		} else {
			drained = held
		}
	})
	if drained != nil {
		return drained
	}
	return over
}

// SetProblem implements [fleet.Members].
func (ms *members) SetProblem(p fleet.Problem) {
	ms.change(func() { ms.problems = append(ms.problems, p) })
}

// refuse lets Set return err for the member from now on; nil ends that.
func (ms *members) refuse(name fleet.ClusterName, err error) {
	ms.change(func() { ms.refused[name] = err })
}

// hold lets the drain of the member last until letGo is called.
func (ms *members) hold(name fleet.ClusterName) (letGo func()) {
	held := make(chan struct{})
	ms.change(func() { ms.held[name] = held })
	return sync.OnceFunc(func() { close(held) })
}

func (ms *members) change(change func()) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	change()
	close(ms.news)
	ms.news = make(chan struct{})
}

// look returns what look returns, which is called while nothing changes, and a channel that is closed at the next change.
func (ms *members) look(look func() string) (found string, news <-chan struct{}) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return look(), ms.news
}

// reported returns all calls of Set and Leave for the member that were accepted, in their order.
func (ms *members) reported(name fleet.ClusterName) []call {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	var reported []call
	for _, c := range ms.calls {
		if c.member.Name == name && !c.removal && c.err == nil {
			reported = append(reported, c)
		}
	}
	return reported
}

// withdrawn returns the names of all calls of Remove, in their order.
func (ms *members) withdrawn() []fleet.ClusterName {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.withdrawnLocked()
}

func (ms *members) withdrawnLocked() []fleet.ClusterName {
	var names []fleet.ClusterName
	for _, c := range ms.calls {
		if c.removal {
			names = append(names, c.member.Name)
		}
	}
	return names
}

// String has one line for each call, those of SetProblem last.
func (ms *members) String() string {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	lines := make([]string, 0, len(ms.calls)+len(ms.problems))
	for _, c := range ms.calls {
		lines = append(lines, c.String())
	}
	for _, p := range ms.problems {
		lines = append(lines, fmt.Sprintf("SetProblem(%s of %s, %q: %s: %s)", p.About, p.Provider, p.Member, p.Reason, p.Message))
	}
	return strings.Join(lines, "\n")
}
