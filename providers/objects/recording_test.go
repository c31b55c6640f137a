package objects_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// patience is how long a test waits for what must happen. After an outage of half a minute, as a restart may be on a busy
// machine, client-go waits up to a minute before it tries again.
const patience = 2 * time.Minute

// recording is a [fleet.Members] that keeps what was reported.
type recording struct {
	mu       sync.Mutex // guards what follows
	news     chan struct{}
	members  map[fleet.ClusterName]fleet.Member
	sets     map[fleet.ClusterName]int
	removals map[fleet.ClusterName]int
	hostsOf  map[fleet.ClusterName][]string // that were reported, one after the other
	leaving  map[fleet.ClusterName]chan struct{}
	problems map[string]string // by subject and member, the reason and the message
	broken   []string          // what a provider must not do
}

func newRecording() *recording {
	return &recording{
		news:     make(chan struct{}),
		members:  map[fleet.ClusterName]fleet.Member{},
		sets:     map[fleet.ClusterName]int{},
		removals: map[fleet.ClusterName]int{},
		hostsOf:  map[fleet.ClusterName][]string{},
		leaving:  map[fleet.ClusterName]chan struct{}{},
		problems: map[string]string{},
	}
}

func (r *recording) Set(m fleet.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	m, err := m.Loaded()
	if err != nil {
		return nil //nolint:nilerr // it is outdated: another description follows
	}
	r.change(func() {
		delete(r.leaving, m.Name)
		r.members[m.Name] = m
		r.sets[m.Name]++
		if m.Config != nil {
			r.hostsOf[m.Name] = append(r.hostsOf[m.Name], m.Config.Host)
		}
	})
	return nil
}

// Leave implements [fleet.Members]. The member has left when letLeave is called.
func (r *recording) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	r.change(func() {
		if r.leaving[m.Name] == nil {
			r.leaving[m.Name] = make(chan struct{})
		}
		left = r.leaving[m.Name]
		select {
		case <-left:
		default:
			r.members[m.Name] = m
		}
	})
	return left, nil
}

// letLeave lets a member leave, once it is about to.
func (r *recording) letLeave(t *testing.T, name fleet.ClusterName) {
	t.Helper()
	r.waitUntil(t, string(name)+" is about to leave", func() bool { return r.leaving[name] != nil })
	r.change(func() {
		delete(r.members, name)
		close(r.leaving[name])
	})
}

func (r *recording) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	r.change(func() {
		r.removals[name]++
		delete(r.leaving, name)
		delete(r.members, name)
	})
	return nil
}

// SetProblem implements [fleet.Members].
func (r *recording) SetProblem(p fleet.Problem) {
	r.change(func() {
		key := strings.TrimSpace(p.About + " " + string(p.Member))
		if p.Reason == "" {
			delete(r.problems, key)
			return
		}
		r.problems[key] = p.Reason + ": " + p.Message
	})
}

// waitForProblem waits until there is a problem about the subject that has all the parts; without parts, until there is none.
func (r *recording) waitForProblem(t *testing.T, about string, parts ...string) {
	t.Helper()
	r.waitUntil(t, fmt.Sprintf("a problem of %s with %q", about, parts), func() bool {
		text, ok := r.problems[about]
		return ok == (len(parts) > 0) && hasAll(text, parts)
	})
}

func (r *recording) change(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.news)
	r.news = make(chan struct{})
}

// waitUntil waits for the condition, which may read the recording.
func (r *recording) waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		r.mu.Lock()
		ok, news := condition(), r.news
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-timeout:
			r.read(func() {
				t.Fatalf("waited for this in vain: %s; there are members %v, sets %v, removals %v, problems %q",
					what, slices.Sorted(maps.Keys(r.members)), r.sets, r.removals, r.problems)
			})
		}
	}
}

// waitForHosts waits until these are the members, each with the host of its config, or with the text of its error.
func (r *recording) waitForHosts(t *testing.T, want map[fleet.ClusterName]string) {
	t.Helper()
	r.waitUntil(t, fmt.Sprintf("members %v", want), func() bool { return maps.Equal(want, r.hosts()) })
}

func (r *recording) hosts() map[fleet.ClusterName]string {
	hosts := map[fleet.ClusterName]string{}
	for name, m := range r.members {
		if m.Err != nil {
			hosts[name] = m.Err.Error()
		} else {
			hosts[name] = m.Config.Host
		}
	}
	return hosts
}

// read calls look while nothing changes.
func (r *recording) read(look func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	look()
}
