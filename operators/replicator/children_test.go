package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
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

// TestAProcessWhoseAnswersMakeSomethingPanicEnds: the next namespace gets another one, as it is being killed.
func TestAProcessWhoseAnswersMakeSomethingPanicEnds(t *testing.T) {
	t.Parallel()
	c := &controller{}
	t.Cleanup(c.children.end)
	in := dependents.Target{Cluster: "east"}
	for range 3 {
		panicked := func() (what any) {
			defer func() { what = recover() }() // as package dependents does
			obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			show := func(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) { return obj, nil }
			take := func(int, []byte, error) { panic("no answer") }
			must(t, c.children.override(t.Context(), job{Namespace: "hostile"}, []*unstructured.Unstructured{obj}, show, take))
			return nil
		}()
		if panicked == nil || len(c.children.pids()) > 0 {
			t.Fatalf("after the panic %v, there are the processes %v", panicked, c.children.pids())
		}
		if !c.children.spaces["hostile"].isSlow() {
			t.Error("its namespace does not count as slow, and may end one process after the other")
		}
		_, err := c.desired(t.Context(), overridden("honest", "cluster.name"), in)
		must(t, err)
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
				if err != nil && !errors.Is(err, dependents.ErrPending) {
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
	if _, err := c.desired(t.Context(), overridden("late", "cluster.name"), dependents.Target{Cluster: "east"}); !errors.Is(err, dependents.ErrPending) {
		t.Errorf("after the end: %v", err)
	}
}

// TestNamespacesTakeTurns: the next is that of the one whose last is longest ago. Those that are slow have one at a time, and leave one process to others.
// They hold as many workers together as another one.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	var c children
	take := func(namespace string) *turn {
		t.Helper()
		has, err := c.take(t.Context(), namespace)
		must(t, err)
		return has
	}
	isBusy := func(namespace string) bool {
		has, w := c.ask(namespace)
		return has == nil && w == nil
	}
	slow := []string{"a", "b", "c", "d", "e"}
	for _, namespace := range slow {
		has := take(namespace)
		has.wasSlow = true
		c.give(has)
	}
	turns := make([]*turn, 0, mostChildren)
	for _, namespace := range slow[:mostOfOne] {
		turns = append(turns, take(namespace))
		if !isBusy(namespace) {
			t.Errorf("namespace %s is slow, and has two turns at once, or holds another worker", namespace)
		}
	}
	_, last := c.ask("e")
	if last == nil || !isBusy("e") {
		t.Fatal("slow namespaces have all processes, none of them waits, or one does with two workers")
	}
	_, earlier := c.ask("d")
	if now := <-last.turn; now != nil || earlier == nil || !isBusy("e") {
		t.Error("of the slow namespaces, it is not the one that waits whose last turn is longest ago")
	}
	turns = append(turns, take("quick"))
	next := make(chan *turn)
	for _, namespace := range []string{"quick", "first"} { // quick will have had one just now
		_, w := c.ask(namespace)
		go func() { next <- <-w.turn }()
	}
	c.give(turns[mostOfOne])
	if has := <-next; has.of != c.spaces["first"] {
		t.Error("a namespace has two turns, and another one that waits has none")
	} else {
		c.give(has)
	}
	c.give(<-next)
	for _, has := range turns[:mostOfOne] {
		c.give(has)
	}
	c.give(<-earlier.turn)
	for _, space := range c.spaces { // as if it was long ago
		space.last, space.slow = time.Time{}, time.Time{}
	}
	c.give(take("last"))
	if len(c.spaces) != 1 || c.lent != 0 || c.slow != 0 || len(c.waiting) > 0 {
		t.Errorf("what is remembered: %+v", c.spaces)
	}
}

// TestANamespaceHoldsFewWorkers, with all but one of the processes while nobody else waits.
func TestANamespaceHoldsFewWorkers(t *testing.T) {
	t.Parallel()
	var c children
	turns := make([]*turn, 0, mostWorkers)
	var waits *waiter
	for range mostWorkers {
		has, w := c.ask("a")
		if has != nil {
			turns = append(turns, has)
		} else {
			waits = w
		}
	}
	if len(turns) != mostOfOne || waits == nil {
		t.Fatalf("it has %d turns, and waits for one: %t", len(turns), waits != nil)
	}
	if has, w := c.ask("a"); has != nil || w != nil {
		t.Error("it holds one worker more")
	}
	if has, _ := c.ask("b"); has == nil {
		t.Error("it leaves nothing to others")
	}
	_, others := c.ask("c")
	c.give(turns[0])
	if has := <-others.turn; has.of != c.spaces["c"] || !c.leave(waits) {
		t.Error("what it gives back, it gets before those that have none")
	}
}

// TestANamespaceThatHasATurnLeavesTheNextToOthers, also if it has waited for longer.
func TestANamespaceThatHasATurnLeavesTheNextToOthers(t *testing.T) {
	t.Parallel()
	var c children
	turns := make([]*turn, mostChildren)
	for i, namespace := range []string{"a", "a", "b", "d"} {
		turns[i], _ = c.ask(namespace)
	}
	_, again := c.ask("a")
	_, first := c.ask("c")
	c.give(turns[2])
	select {
	case <-first.turn:
	default:
		t.Error("one that has two turns has a third one, and another none")
	}
	c.give(turns[3])
	if has := <-again.turn; has.of != c.spaces["a"] {
		t.Error("what nobody else waits for is not given")
	}
}

// TestARolloutOfManyTargetsGoesOn with as many workers as the controller has, none of which is refused for long.
func TestARolloutOfManyTargetsGoesOn(t *testing.T) {
	t.Parallel()
	const targets, workers = 100, 16
	c := &controller{}
	t.Cleanup(c.children.end)
	objects := make([]client.Object, 10)
	for i := range objects {
		objects[i] = configMap(fmt.Sprintf("m-%d", i))
	}
	r := replicator("r", nil, objects...)
	for i := range 5 {
		r.Spec.Overrides = append(r.Spec.Overrides, expressionsOf(fmt.Sprintf("/data/k%d", i), "cluster.name + '-' + object.metadata.name"))
	}
	queue := make(chan int, targets)
	for i := range targets {
		queue <- i
	}
	var left, busy atomic.Int32
	left.Store(targets)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range queue {
				all, err := c.desired(t.Context(), r, dependents.Target{Cluster: fleet.ClusterName(fmt.Sprintf("c%d", i))})
				switch {
				case errors.Is(err, dependents.ErrPending):
					busy.Add(1)
					time.AfterFunc(100*time.Millisecond, func() { queue <- i })
					continue
				case err != nil || len(all) != len(objects):
					t.Errorf("target %d has %d objects: %v", i, len(all), err)
				}
				if left.Add(-1) == 0 {
					close(queue)
				}
			}
		})
	}
	running.Wait()
	t.Logf("it was busy %d times", busy.Load())
	if c.children.spaces[r.Namespace].isSlow() {
		t.Error("a Replicator of many objects counts as slow")
	}
}

// TestProgramsOfANamespaceTakeLittleRoom: they are bounded by their text, and those that were used last are kept.
func TestProgramsOfANamespaceTakeLittleRoom(t *testing.T) {
	t.Parallel()
	e, err := newExpressions()
	must(t, err)
	long := strings.Repeat(",1", 2000)
	for i := range mostTexts/len(long) + 5 {
		text := fmt.Sprintf("[%d%s].size()", i, long)
		made, err := e.program(text)
		must(t, err)
		if again, err := e.program(text); err != nil || again != made {
			t.Fatalf("expression %d is compiled twice: %v", i, err)
		}
		kept := 0
		for text := range e.programs {
			kept += len(text)
		}
		if kept > mostTexts {
			t.Fatalf("%d bytes of expressions are kept", kept)
		}
	}
	if e.forget(); len(e.programs)+e.texts > 0 {
		t.Error("something is kept for another namespace")
	}
}
