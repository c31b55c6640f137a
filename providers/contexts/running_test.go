package contexts_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

// running is a provider that runs. It is the [fleet.Members] that it reports to.
type running struct {
	t     *testing.T
	fleet fleettest.Running // logs the problems

	mu   sync.Mutex // guards what follows
	news chan struct{}
	now  map[fleet.ClusterName]fleet.Member
	// calls has a line for each call: what it was, and what a member is by its config.
	calls []string
	log   []string
}

// start runs the provider until the test ends.
func start(t *testing.T, p contexts.Provider) *running {
	t.Helper()
	r := &running{t: t, news: make(chan struct{}), now: map[fleet.ClusterName]fleet.Member{}}
	logger := funcr.New(func(_, line string) { r.change(func() { r.log = append(r.log, line) }) }, funcr.Options{})
	r.fleet, _ = fleettest.Run(t, fleet.Options{Logger: logger})
	ctx, cancel := context.WithCancel(logf.IntoContext(t.Context(), logger))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, nil, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("calls:\n%s\nlog:\n%s", strings.Join(r.calls, "\n"), strings.Join(r.log, "\n"))
		}
	})
	return r
}

// Set implements [fleet.Members].
func (r *running) Set(m fleet.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	r.change(func() {
		r.now[m.Name] = m
		r.calls = append(r.calls, "set "+describe(m))
	})
	return nil
}

func (r *running) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	return nil, r.Set(m)
}

// Remove implements [fleet.Members].
func (r *running) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	r.change(func() {
		delete(r.now, name)
		r.calls = append(r.calls, "remove "+string(name))
	})
	return nil
}

// SetProblem implements [fleet.Members].
func (r *running) SetProblem(p fleet.Problem) { r.fleet.SetProblem(p) }

func (r *running) change(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.news)
	r.news = make(chan struct{})
}

// describe says what a member is: "name@host", or "name !reason".
func describe(m fleet.Member) string {
	if m.Err != nil {
		reason := "?"
		if with, ok := m.Err.(interface{ Reason() string }); ok {
			reason = with.Reason()
		}
		return fmt.Sprintf("%s !%s", m.Name, reason)
	}
	return fmt.Sprintf("%s@%s", m.Name, strings.TrimPrefix(m.Config.Host, "https://"))
}

// waitFor waits until the members are these, in the form of describe.
func (r *running) waitFor(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	r.until(func() string {
		var got []string
		for m := range maps.Values(r.now) {
			got = append(got, describe(m))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("the members are %q, want %q", got, want)
		}
		return ""
	})
}

// waitForLog waits for a line of the log with all of these parts.
func (r *running) waitForLog(parts ...string) {
	r.t.Helper()
	r.until(func() string {
		if r.countLogged(parts...) == 0 {
			return fmt.Sprintf("the log has no line with %q", parts)
		}
		return ""
	})
}

// countLogged counts the lines of the log with all of these parts. It is called by until.
func (r *running) countLogged(parts ...string) (n int) {
	for _, line := range r.log {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			n++
		}
	}
	return n
}

// until waits until there is nothing amiss. amiss may read all that r has.
func (r *running) until(amiss func() string) {
	r.t.Helper()
	timeout := time.After(patience)
	for {
		r.mu.Lock()
		why, news := amiss(), r.news
		r.mu.Unlock()
		if why == "" {
			return
		}
		select {
		case <-news:
		case <-timeout:
			r.t.Fatalf("after %v: %s", patience, why)
		}
	}
}

// member returns a member that is there.
func (r *running) member(name fleet.ClusterName) fleet.Member {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.now[name]
	if !ok {
		r.t.Fatalf("there is no member %q", name)
	}
	return m
}

// called returns the calls so far.
func (r *running) called() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// logged returns the lines of the log so far.
func (r *running) logged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}
