package providertest

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
)

// trial is one case on a source of its own.
type trial struct {
	suite

	t        *testing.T
	source   Source
	patience time.Duration
	bells    []*doorbell // at the addresses of the clusters
	tokens   []string    // that the clusters had
}

// set describes clusters in the source.
func (c *trial) set(ds ...Description) {
	c.t.Helper()
	for _, d := range ds {
		c.source.Set(c.t, d)
	}
}

// discovery is a provider that runs.
type discovery struct {
	*members

	trial *trial
	end   context.CancelFunc
	done  chan struct{} // closed when Run has returned
	err   error         // what it returned, once done is closed
	log   journal
}

// journal keeps what is logged.
type journal struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (j *journal) add(_, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// start runs a provider on the source. It ends with the test at the latest.
func (c *trial) start() *discovery {
	c.t.Helper()
	return c.startWith(newMembers())
}

// startWith is start, with what the provider reports to.
func (c *trial) startWith(ms *members) *discovery {
	c.t.Helper()
	d := &discovery{members: ms, trial: c, done: make(chan struct{})}
	var ctx context.Context
	ctx, d.end = context.WithCancel(c.t.Context())
	ctx = logf.IntoContext(ctx, funcr.New(d.log.add, funcr.Options{Verbosity: 10}))
	provider := c.source.Provider()
	go func() {
		defer close(d.done)
		d.err = provider.Run(ctx, c.source.Local, d.members)
	}()
	c.t.Cleanup(func() {
		d.stop()
		if c.t.Failed() {
			c.t.Logf("the provider reported\n%s\nand logged\n%s", d.members, strings.Join(d.log.read(), "\n"))
		}
	})
	return d
}

// stop ends the provider's context and waits until Run has returned.
func (d *discovery) stop() {
	t := d.trial.t
	t.Helper()
	d.end()
	select {
	case <-d.done:
	case <-time.After(d.trial.patience):
		t.Fatalf("Run has not returned %v after the end of its context", d.trial.patience)
	}
}

// waitFor waits until the members are the described clusters, and no others.
func (d *discovery) waitFor(want ...Description) {
	d.trial.t.Helper()
	d.waitUntil(func() string { return d.trial.diff(d.now, want) })
}

// diff says in what members differ from the clusters that are described, and "" if they do not.
func (s suite) diff(got map[fleet.ClusterName]fleet.Member, want []Description) string {
	unwanted := maps.Clone(got)
	for _, d := range want {
		name := s.Name(d.Name)
		m, ok := got[name]
		if !ok {
			return fmt.Sprintf("%q is not reported", name)
		}
		if diff := s.Diff(d, m); diff != "" {
			return fmt.Sprintf("%q: %s", name, diff)
		}
		delete(unwanted, name)
	}
	if len(unwanted) > 0 {
		return fmt.Sprintf("%q are members too", slices.Sorted(maps.Keys(unwanted)))
	}
	return ""
}

// diffBeside is diff, whatever is reported of one more cluster.
func (s suite) diffBeside(more Description, got map[fleet.ClusterName]fleet.Member, want ...Description) string {
	got = maps.Clone(got)
	delete(got, s.Name(more.Name))
	return s.diff(got, want)
}

// waitUntil waits until there is nothing amiss. amiss may read what the members have.
func (d *discovery) waitUntil(amiss func() string) {
	t := d.trial.t
	t.Helper()
	timeout := time.After(d.trial.patience)
	for {
		why, news := d.look(amiss)
		if why == "" {
			return
		}
		select {
		case <-news:
		case <-d.done:
			t.Fatalf("Run returned before the end of its context: %v", d.err)
		case <-timeout:
			t.Fatalf("after %v: %s", d.trial.patience, why)
		}
	}
}

// wantWithdrawn fails the test if others were withdrawn than the described ones.
func (d *discovery) wantWithdrawn(want ...Description) {
	t := d.trial.t
	t.Helper()
	names := make([]fleet.ClusterName, len(want))
	for i, w := range want {
		names[i] = d.trial.Name(w.Name)
	}
	got := d.withdrawn()
	slices.Sort(names)
	slices.Sort(got)
	got = slices.Compact(got)
	if !slices.Equal(names, got) {
		t.Errorf("%q were withdrawn, want %q", got, names)
	}
}
