package mcsource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// made is a cluster that a provider has made: a member with it is Ready at once.
type made struct{ cluster.Cluster }

// GetAPIReader implements cluster.Cluster: nobody can be asked which cluster it is.
func (*made) GetAPIReader() client.Reader { return nil }

// calls is a fleet with a channel, and what its handlers were told. Events are numbers.
type calls struct {
	t      *testing.T
	ctx    context.Context
	fleet  fleettest.Running
	stop   context.CancelFunc
	events chan ClusterEvent[int]
	source *channel[int, mcreconcile.Request]

	mu    sync.Mutex // guards what follows
	told  map[mcreconcile.ClusterName][]int
	made  int // handlers
	lines []string
	hang  map[mcreconcile.ClusterName]chan struct{} // handlers return when it is closed
}

// newCalls is called within synctest. The channel is not started.
func newCalls(t *testing.T) *calls {
	t.Helper()
	f, _ := fleettest.Run(t, fleet.Options{})
	c := &calls{
		t: t, fleet: f, events: make(chan ClusterEvent[int]),
		told: map[mcreconcile.ClusterName][]int{}, hang: map[mcreconcile.ClusterName]chan struct{}{},
	}
	c.ctx, c.stop = context.WithCancel(log.IntoContext(t.Context(), funcr.New(c.log, funcr.Options{})))
	c.source, _ = Channel(f.Fleet, c.events, c.handle).(*channel[int, mcreconcile.Request])
	return c
}

func (c *calls) log(_, line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, line)
}

// handle makes the handler of a member.
func (c *calls) handle(name mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[int, mcreconcile.Request] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	hang := c.hang[name]
	return handler.TypedFuncs[int, mcreconcile.Request]{GenericFunc: func(
		ctx context.Context, evt event.TypedGenericEvent[int], _ workqueue.TypedRateLimitingInterface[mcreconcile.Request],
	) {
		if in, _ := mcreconcile.ClusterNameFrom(ctx); in != name {
			c.t.Errorf("an event of %q is handled in the context of %q", name, in)
		}
		c.mu.Lock()
		c.told[name] = append(c.told[name], evt.Object)
		c.mu.Unlock()
		if hang != nil {
			<-hang
		}
	}}
}

// set reports a member that is Ready at once.
func (c *calls) set(name fleet.ClusterName, identity string) {
	c.t.Helper()
	if err := c.fleet.Set(fleet.Member{Name: name, Cluster: &made{}, Identity: identity}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func (c *calls) start() {
	c.t.Helper()
	if err := c.source.Start(c.ctx, nil); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func (c *calls) remove(name fleet.ClusterName) (drained <-chan struct{}) {
	drained = c.fleet.Remove(name)
	synctest.Wait()
	return drained
}

// send sends events to a member, without waiting for its handler.
func (c *calls) send(name mcreconcile.ClusterName, numbers ...int) {
	for _, n := range numbers {
		c.events <- ClusterEvent[int]{TypedGenericEvent: event.TypedGenericEvent[int]{Object: n}, ClusterName: name}
	}
	synctest.Wait()
}

// isTold fails the test unless these are all events of a member of which its handler was told.
func (c *calls) isTold(name mcreconcile.ClusterName, want ...int) {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.told[name], want) {
		c.t.Errorf("member %s is told of %v, want %v", name, c.told[name], want)
	}
}

// logged fails the test unless there are so many lines, and the last says this.
func (c *calls) logged(lines int, last ...string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) != lines {
		c.t.Errorf("the log is %q, want %d lines", c.lines, lines)
		return
	}
	for _, part := range last {
		if !strings.Contains(c.lines[lines-1], part) {
			c.t.Errorf("the log ends with %q, want %q", c.lines[lines-1], part)
		}
	}
}

// TestASlowHandlerDelaysNoOtherMember: its own member's events follow in order. The drain waits for the handler.
func TestASlowHandlerDelaysNoOtherMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t)
		slow := make(chan struct{})
		c.hang["slow"] = slow
		c.start()
		c.set("slow", "")
		c.set("quick", "")
		c.send("slow", 1, 2, 3)
		c.send("quick", 1, 2)
		c.isTold("quick", 1, 2)
		c.isTold("slow", 1)
		drained := c.remove("slow")
		select {
		case <-drained:
			t.Error("the member is drained while its handler runs")
		default:
		}
		close(slow)
		<-drained
		c.isTold("slow", 1)
		c.send("slow", 4)
		c.isTold("slow", 1)
		if c.made != 2 {
			t.Errorf("%d handlers were made for two engagements", c.made)
		}
	})
}

// TestEventsPileUpToABound where a handler hangs. That more are dropped is logged once, and that none waits any more.
func TestEventsPileUpToABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t)
		slow := make(chan struct{})
		c.hang["slow"] = slow
		c.start()
		c.set("slow", "")
		want := make([]int, 0, 2+mostWaiting)
		for n := range 1 + mostWaiting {
			c.send("slow", n)
			want = append(want, n)
		}
		c.logged(0)
		c.send("slow", -1, -2, -3)
		c.logged(1, "Dropping", `"cluster"="slow"`)
		close(slow)
		c.isTold("slow", want...)
		c.logged(2, `"cluster"="slow"`, fmt.Sprintf(`"dropped"=%d`, 3))
		c.send("slow", 5)
		c.isTold("slow", append(want, 5)...)
		c.logged(2)
	})
}

// TestEventsThatWaitAreForTheirCluster: another engagement of the cluster handles them, and another cluster never does.
func TestEventsThatWaitAreForTheirCluster(t *testing.T) {
	t.Parallel()
	for identity, want := range map[string][]int{"x": {1, 2, 3}, "y": {1, 3}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCalls(t)
			slow := make(chan struct{})
			c.hang["a"] = slow
			c.start()
			c.set("a", "x")
			c.send("a", 1, 2)
			c.set("a", identity)
			close(slow)
			synctest.Wait()
			c.send("a", 3)
			c.isTold("a", want...)
			if c.made != 2 {
				t.Errorf("%d handlers were made for two engagements", c.made)
			}
		})
	}
}

// TestEventsThatWaitOutlastThatAnIdentityIsLearned, or is not known any more: nobody has said that it is another cluster.
func TestEventsThatWaitOutlastThatAnIdentityIsLearned(t *testing.T) {
	t.Parallel()
	for identities, want := range map[[2]string][]int{{"", "x"}: {1}, {"x", ""}: {1}, {"", ""}: {1}, {"x", "y"}: nil} {
		synctest.Test(t, func(t *testing.T) {
			c := newCalls(t)
			engaged := func(name fleet.ClusterName, identity string) *fleet.Engagement {
				c.set(name, identity)
				e, err := c.fleet.Engagement(name)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			before, now := engaged("before", identities[0]), engaged("now", identities[1])
			l := &lanes[int, mcreconcile.Request]{ctx: c.ctx, source: c.source, of: map[fleet.ClusterName]*lane[int, mcreconcile.Request]{
				"a": {engagement: before, waiting: []event.TypedGenericEvent[int]{{Object: 1}}},
			}}
			l.update("a", now)
			c.isTold("now", want...)
		})
	}
}

// TestAnEventThatComesRightAfterItsMemberIsEngagedIsHandled: the channel may not have heard of the engagement yet, or of an
// older state alone.
func TestAnEventThatComesRightAfterItsMemberIsEngagedIsHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t)
		l := c.source.lanes(c.ctx, nil)
		send := func(n int) {
			l.add(ClusterEvent[int]{TypedGenericEvent: event.TypedGenericEvent[int]{Object: n}, ClusterName: "a"})
		}
		send(0)
		c.set("a", "x")
		send(1)
		l.update("a", nil) // as it was before
		c.isTold("a")
		before, err := c.fleet.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		l.update("a", before)
		c.isTold("a", 1)

		c.set("a", "y")
		send(2)
		c.isTold("a", 1)
		l.update("a", before)
		now, err := c.fleet.Engagement("a")
		if err != nil {
			t.Fatal(err)
		}
		l.update("a", now)
		c.isTold("a", 1, 2)
		<-c.remove("a")
		l.update("a", nil)
		send(3)
		if len(l.of) != 0 {
			t.Errorf("%d lanes are left of members that are gone", len(l.of))
		}
	})
}

// TestAChannelThatIsClosedHandlesWhatWasSent: and nothing of it is left when the controller stops.
func TestAChannelThatIsClosedHandlesWhatWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(t)
		slow := make(chan struct{})
		c.hang["a"] = slow
		c.start()
		c.set("a", "")
		c.send("a", 1, 2)
		close(c.events)
		synctest.Wait()
		close(slow)
		c.isTold("a", 1, 2)
		c.stop()
	})
}
