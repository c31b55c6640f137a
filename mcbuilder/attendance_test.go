package mcbuilder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// existing is a cluster that a provider has made: a member with it is Ready at once.
type existing struct{ cluster.Cluster }

// GetAPIReader implements cluster.Cluster: nobody can be asked which cluster it is.
func (*existing) GetAPIReader() client.Reader { return nil }

// managing is a manager that has a fleet, and nothing else.
type managing struct {
	mcmanager.Manager
	fleet    *fleet.Fleet
	provider bool
}

// GetProvider implements mcmanager.Manager.
func (m managing) GetProvider() fleet.Provider {
	if !m.provider {
		return nil
	}
	return &fleettest.Provider{}
}

// GetFleet implements mcmanager.Manager.
func (m managing) GetFleet() *fleet.Fleet { return m.fleet }

// attending is a fleet, and the queue of a controller that an attendance keeps in step with it.
type attending struct {
	t       *testing.T
	fleet   fleettest.Running
	queue   *mcqueue.Queue[mcreconcile.Request]
	waiting *waiting[mcreconcile.Request]
	leaver  *leaver[mcreconcile.Request]
	stop    context.CancelFunc // ends the controller

	mu    sync.Mutex // guards lines
	lines []string   // that the attendance logged
}

func (a *attending) log(_, line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, line)
}

// logged returns whether anything was logged. It fails the test if there is a line that does not say this.
func (a *attending) logged(says string) bool {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range a.lines {
		if !strings.Contains(line, says) {
			a.t.Errorf("the log has %q, want %q", line, says)
		}
	}
	return len(a.lines) > 0
}

// attend runs an attendance, which ends with the test. It is called within synctest.
func attend(t *testing.T) *attending {
	t.Helper()
	return attendWith(t, nil)
}

// attendWith is attend with weights.
func attendWith(t *testing.T, weight func(fleet.Status) int) *attending {
	t.Helper()
	return attendIn(t, fleet.Options{}, weight)
}

// attendIn is attendWith in a fleet that has these options.
func attendIn(t *testing.T, opts fleet.Options, weight func(fleet.Status) int) *attending {
	t.Helper()
	a := &attending{
		t:       t,
		queue:   mcqueue.New("", mcqueue.Options[mcreconcile.Request]{}),
		waiting: &waiting[mcreconcile.Request]{},
	}
	a.leaver = newLeaver(nil, a.waiting)
	var end func()
	a.fleet, end = fleettest.Run(t, opts)
	controller, stop := context.WithCancel(t.Context())
	a.stop = stop
	attends := attendance[mcreconcile.Request]{fleet: a.fleet.Fleet, controller: "c", waiting: a.waiting, leaver: a.leaver, weight: weight, log: funcr.New(a.log, funcr.Options{}), started: func(context.Context, *mcqueue.Queue[mcreconcile.Request]) {}}
	if err := attends.Start(controller, a.queue); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		end()
		synctest.Wait()
	})
	synctest.Wait()
	return a
}

func (a *attending) set(m fleet.Member) {
	a.t.Helper()
	if err := a.fleet.Set(m); err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
}

// ready reports a member that is Ready at once, or engaged anew.
func (a *attending) ready(name fleet.ClusterName) {
	a.set(fleet.Member{Name: name, Cluster: &existing{}})
}

// remove removes a member. The channel is closed when it is drained.
func (a *attending) remove(name fleet.ClusterName) (drained <-chan struct{}) {
	drained = a.fleet.Remove(name)
	synctest.Wait()
	return drained
}

// engagement returns that of a member that is Ready.
func (a *attending) engagement(name fleet.ClusterName) *fleet.Engagement {
	a.t.Helper()
	e, err := a.fleet.Engagement(name)
	if err != nil {
		a.t.Fatal(err)
	}
	return e
}

// take takes what the queue hands out now, at most this many requests.
func (a *attending) take(most int) (names []string) {
	a.t.Helper()
	for range most {
		got := make(chan mcreconcile.Request, 1)
		go func() {
			if req, shutdown := a.queue.Get(); !shutdown {
				got <- req
			}
		}()
		synctest.Wait()
		select {
		case req := <-got:
			names = append(names, req.String())
		default:
			return names
		}
	}
	return names
}

func request(cluster fleet.ClusterName, name string) mcreconcile.Request {
	req := mcreconcile.Request{ClusterName: cluster}
	req.Name = name
	return req
}

// weightOfA returns how many requests of member "a" go before one of another member.
func (a *attending) weightOfA() (turns int) {
	a.t.Helper()
	const most = 150 // more than the queue allows
	for i := range most {
		a.queue.Add(request("a", fmt.Sprint(i)))
	}
	a.queue.Add(request("other", "x"))
	for _, taken := range a.take(most + 1) {
		if taken == request("other", "x").String() {
			break
		}
		turns++
	}
	for i := range most {
		a.queue.Done(request("a", fmt.Sprint(i)))
	}
	a.queue.Done(request("other", "x"))
	return turns
}

// TestTheWeightOfAMemberFollowsItsLabel as it changes, from before it is ready, and is forgotten when the member leaves.
func TestTheWeightOfAMemberFollowsItsLabel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attendWith(t, WeightFromLabel("weight"))
		defer a.queue.ShutDown()
		a.ready("other")
		for _, step := range []struct {
			label string
			want  int
		}{{"3", 3}, {"", 1}, {"7", 7}, {"0", 1}, {"many", 1}, {"-2", 1}, {"99999999999999999999", 1}, {"5000", 100}} {
			a.set(fleet.Member{Name: "a", Cluster: &existing{}, Labels: map[string]string{"weight": step.label}})
			if got := a.weightOfA(); got != step.want {
				t.Errorf("the weight of label %q is %d, want %d", step.label, got, step.want)
			}
		}
		<-a.remove("a")
		if got := a.weightOfA(); got != 1 { // whatever is queued for it then
			t.Errorf("the weight of a member that has left is %d, want 1", got)
		}
	})
}

func TestAWeightThatPanicsIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attendWith(t, func(status fleet.Status) int {
			if status.Labels["weight"] == "" {
				panic("no weight")
			}
			return 4
		})
		defer a.queue.ShutDown()
		a.ready("other")
		a.set(fleet.Member{Name: "a", Cluster: &existing{}, Labels: map[string]string{"weight": "yes"}})
		if got := a.weightOfA(); got != 4 {
			t.Errorf("the weight is %d, want 4", got)
		}
		if !a.logged(`"cluster"="other"`) {
			t.Error("the log has nothing of the panic")
		}
		a.ready("a")
		if got := a.weightOfA(); got != 1 {
			t.Errorf("after a panic the weight is %d, want 1", got)
		}
		<-a.remove("a")
		if a.queue.Stats("a") != (mcqueue.Stats{}) {
			t.Error("the queue is not in step with the fleet any more")
		}
	})
}

func TestTheQueueParksRequestsOfAMemberUntilItIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		defer a.queue.ShutDown()
		a.set(fleet.Member{Name: "a", Err: errors.New("no kubeconfig yet")})
		a.queue.Add(request("a", "x"))
		if got := a.take(1); len(got) > 0 || !a.queue.Stats("a").Paused || a.fleet.Queues("a")["c"].Depth != 1 {
			t.Errorf("%q were handed out, %+v; want one that is parked", got, a.queue.Stats("a"))
		}
		a.ready("a")
		if a.queue.Stats("a").Paused {
			t.Error("the requests of a member that is ready are parked")
		}
		if a.logged("") {
			t.Errorf("the log has %q of a queue without weights", a.lines)
		}
	})
}

func TestARequestThatWaitsIsQueuedWhenItsClusterIsReadyOrGone(t *testing.T) {
	t.Parallel()
	ways := map[string]func(a *attending){
		"Ready": func(a *attending) { a.ready("east") },
		"Gone":  func(a *attending) { <-a.remove("east") },
	}
	for name, end := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := attend(t)
				defer a.queue.ShutDown()
				a.ready("west")
				a.set(fleet.Member{Name: "east", Err: errors.New("no kubeconfig yet")})
				a.waiting.add(request("west", "needs-east"), ready("east", "south"))
				if got := a.queue.Len(); got > 0 {
					t.Errorf("%d requests are queued before", got)
				}
				end(a)
				synctest.Wait()
				if got := a.take(2); !slices.Equal(got, []string{request("west", "needs-east").String()}) {
					t.Errorf("%q were handed out", got)
				}
				if len(a.waiting.requests)+len(a.waiting.needs) > 0 || a.waiting.some.Load() {
					t.Errorf("it still waits: %v", a.waiting.requests)
				}
			})
		})
	}
}

// TestRequestsOfAMemberThatLeavesArePurged at once, while another one is still reconciled, and once more when that has
// ended; the member is drained after that alone.
func TestRequestsOfAMemberThatLeavesArePurged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		defer a.queue.ShutDown()
		a.ready("a")
		a.queue.Add(request("a", "running"))
		a.take(1)
		a.queue.Add(request("a", "queued"))
		a.waiting.add(request("a", "waits"), ready("east"))
		drained := a.remove("a")
		if isClosed(drained) || a.queue.Len() > 0 || len(a.waiting.needs) > 0 {
			t.Errorf("drained: %t, %d requests are queued, %d wait; want that it is not drained, and none",
				isClosed(drained), a.queue.Len(), len(a.waiting.needs))
		}
		a.queue.Add(request("a", "running")) // it asks to be called again
		a.waiting.add(request("a", "running"), ready("east"))
		a.queue.Done(request("a", "running"))
		synctest.Wait()
		if !isClosed(drained) || a.queue.Len() > 0 || len(a.waiting.needs) > 0 {
			t.Errorf("drained: %t, %d requests are queued, %d wait; want that it is drained, and none",
				isClosed(drained), a.queue.Len(), len(a.waiting.needs))
		}
	})
}

// TestAMemberThatComesBackBringsNoRequestsOfBefore: it was reported again while its last reconcile went on.
func TestAMemberThatComesBackBringsNoRequestsOfBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		defer a.queue.ShutDown()
		a.ready("a")
		a.queue.Add(request("a", "running"))
		a.take(1)
		drained := a.remove("a")
		a.ready("a")
		a.queue.Add(request("a", "running")) // it asks to be called again
		a.waiting.add(request("a", "running"), ready("east"))
		a.queue.Done(request("a", "running"))
		<-drained
		synctest.Wait()
		if status, _ := a.fleet.Status("a"); status.State != fleet.Ready {
			t.Errorf("the member is %s, want that it is back", status.State)
		}
		if a.queue.Len() > 0 || len(a.waiting.needs) > 0 {
			t.Errorf("%d requests are queued, %d wait; want none", a.queue.Len(), len(a.waiting.needs))
		}
	})
}

// TestWhatIsQueuedOfAMemberThatWasNeverEngagedIsLeftToTheReconciler: nothing is drained, so by the time that the queue hears of it, the
// member may be back and engaged, and what is queued may be news of it.
func TestWhatIsQueuedOfAMemberThatWasNeverEngagedIsLeftToTheReconciler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		defer a.queue.ShutDown()
		a.set(fleet.Member{Name: "a", Err: errors.New("no kubeconfig yet")})
		a.queue.Add(request("a", "x"))
		a.waiting.add(request("a", "y"), ready("east"))
		<-a.remove("a")
		synctest.Wait()
		if a.queue.Len() != 2 || a.queue.Stats("a").Paused || len(a.waiting.needs) > 0 {
			t.Errorf("%d requests are queued, %d wait; want two and none", a.queue.Len(), len(a.waiting.needs))
		}
	})
}

// TestTheQueueHoldsUpNoDrainButOfTheEngagementOfNow: a member may be engaged anew, and the controller may end.
func TestTheQueueHoldsUpNoDrainButOfTheEngagementOfNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := attend(t)
		defer a.queue.ShutDown()
		a.ready("a")
		a.ready("a")
		a.ready("b")
		if drained := a.remove("a"); !isClosed(drained) {
			t.Error("the member that was engaged anew is not drained")
		}
		a.stop()
		synctest.Wait()
		if drained := a.remove("b"); !isClosed(drained) {
			t.Error("a controller that has ended holds up a member")
		}
		if a.waiting.served.Load() || len(a.fleet.Queues("b")) > 0 {
			t.Error("the controller has ended, and is taken to queue what waits")
		}
	})
}
