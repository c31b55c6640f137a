package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

func overridden(namespace, expression string) *v1alpha1.Replicator {
	r := replicator("r", nil, configMap("plain"))
	r.Namespace, r.Spec.Overrides = namespace, []v1alpha1.Override{expressionsOf("/data/a", expression)}
	return r
}

// pids returns the children that nobody uses now.
func (c *children) pids() (all []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.idle {
		all = append(all, one.cmd.Process.Pid)
	}
	return all
}

// TestAProcessThatIsKilledIsReplaced, whether it did nothing or is amid a job.
func TestAProcessThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	c := &controller{}
	t.Cleanup(c.children.end)
	in := dependents.Target{Cluster: "east"}
	honest := func() {
		t.Helper()
		_, err := c.desired(t.Context(), overridden("honest", "cluster.name"), in)
		must(t, err)
	}
	honest()
	idle := c.children.pids()
	if len(idle) != 1 {
		t.Fatalf("there are the processes %v", idle)
	}
	honest()
	if now := c.children.pids(); len(now) != 1 || now[0] != idle[0] {
		t.Errorf("the processes are %v, and were %v", now, idle)
	}
	one := c.children.idle[0]
	must(t, syscall.Kill(idle[0], syscall.SIGKILL))
	<-one.gone
	honest()

	amid := c.children.pids()[0]
	var running sync.WaitGroup
	var failed error
	running.Go(func() { _, failed = c.desired(t.Context(), overridden("killed", endless()), in) })
	stage.Eventually(t, "it has a job", func() bool { return len(c.children.pids()) == 0 })
	must(t, syscall.Kill(amid, syscall.SIGKILL))
	running.Wait()
	if !errors.Is(failed, errEnded) {
		t.Errorf("what it was to do: %v", failed)
	}
	honest()
	if now := c.children.pids(); len(now) != 1 || now[0] == amid {
		t.Errorf("the processes are %v, and one was %d", now, amid)
	}
}

// TestNoProcessOutlivesTheManager, and no goroutine.
func TestNoProcessOutlivesTheManager(t *testing.T) { //nolint:paralleltest // it counts goroutines
	before := runtime.NumGoroutine()
	c := &controller{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.children.Start(ctx) }()
	var running sync.WaitGroup
	for i := range 2 * mostChildren {
		running.Go(func() {
			for range 3 {
				_, err := c.desired(t.Context(), overridden("honest-"+strconv.Itoa(i), "cluster.name"), dependents.Target{Cluster: "east"})
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	pids := c.children.pids()
	if len(pids) == 0 || len(pids) > mostChildren {
		t.Errorf("there are %d processes", len(pids))
	}
	for _, pid := range pids {
		if env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ"); err != nil || len(env) > 0 {
			t.Errorf("a process has the environment %q, %v", env, err)
		}
	}
	stop()
	must(t, <-ended)
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is there", pid)
		}
	}
	stage.Eventually(t, "as many goroutines run as before", func() bool { return runtime.NumGoroutine() <= before })
	if _, err := c.desired(t.Context(), overridden("late", "cluster.name"), dependents.Target{Cluster: "east"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the end: %v", err)
	}
}

// TestNamespacesTakeTurns: the next is that of the one whose last is longest ago, and those that are slow leave one process to others.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	var c children
	take := func(namespace string) *turn {
		t.Helper()
		has, err := c.take(t.Context(), namespace)
		must(t, err)
		return has
	}
	isRefused := func(namespace string) bool {
		_, err := c.take(t.Context(), namespace)
		return errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "namespace "+namespace)
	}
	slow := []string{"a", "b", "c", "d"}
	for _, namespace := range slow {
		has := take(namespace)
		if !isRefused(namespace) {
			t.Errorf("namespace %s has two turns at once", namespace)
		}
		has.wasSlow = true
		c.give(has)
	}
	turns := make([]*turn, 0, mostChildren)
	for _, namespace := range slow[:mostSlow] {
		turns = append(turns, take(namespace))
	}
	if !isRefused("d") {
		t.Error("slow namespaces have all processes")
	}
	begun := time.Now()
	if !isRefused("d") || time.Since(begun) > mostWait {
		t.Error("who has waited in vain waits again")
	}
	turns = append(turns, take("quick"))
	next := make(chan *turn)
	for _, namespace := range []string{"quick", "first"} { // quick will have had one just now
		_, w := c.ask(namespace)
		go func() { next <- <-w.turn }()
	}
	c.give(turns[mostSlow])
	if has := <-next; has.of != c.spaces["first"] {
		t.Error("a namespace has two turns, and another one that waits has none")
	} else {
		c.give(has)
	}
	c.give(<-next)
	for _, has := range turns[:mostSlow] {
		c.give(has)
	}
	for _, space := range c.spaces { // as if it was long ago
		space.last, space.slow, space.refused = time.Time{}, time.Time{}, time.Time{}
	}
	c.give(take("last"))
	if len(c.spaces) != 1 || c.lent != 0 || c.slow != 0 || len(c.waiting) > 0 {
		t.Errorf("what is remembered: %+v", c.spaces)
	}
}
