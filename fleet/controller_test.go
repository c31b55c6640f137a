package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
)

// askingQueue asks the fleet, as a queue may.
type askingQueue struct {
	fleet *Fleet
	depth int
}

// Stats implements Queue.
func (q askingQueue) Stats(name ClusterName) mcqueue.Stats {
	q.fleet.Status(name)
	return mcqueue.Stats{Depth: q.depth, InFlight: len(name)}
}

// Running implements Queue.
func (q askingQueue) Running(name ClusterName) []mcqueue.Running {
	q.fleet.Status(name)
	return []mcqueue.Running{{Request: string(name)}}
}

func TestQueuesShowsThoseThatThereAre(t *testing.T) {
	f := New(Options{})
	hideFirst := f.Controller("one").ShowQueue(askingQueue{f, 1})
	f.Controller("two").ShowQueue(askingQueue{f, 2})
	f.Controller("one").ShowQueue(askingQueue{f, 3}) // the controller runs again
	hideFirst()                                      // which ends late
	want := map[string]mcqueue.Stats{"one": {Depth: 3, InFlight: 4}, "two": {Depth: 2, InFlight: 4}}
	if diff := cmp.Diff(want, f.Queues("name")); diff != "" {
		t.Errorf("queues (-want, +got):\n%s", diff)
	}
	running := map[string][]mcqueue.Running{"one": {{Request: "name"}}, "two": {{Request: "name"}}}
	if diff := cmp.Diff(running, f.Running("name")); diff != "" {
		t.Errorf("running (-want, +got):\n%s", diff)
	}
}

func TestAQueueThatEndedIsNotShown(t *testing.T) {
	f := New(Options{})
	f.Controller("one").ShowQueue(askingQueue{f, 1})()
	if got := f.Queues("a"); len(got) != 0 {
		t.Errorf("queues: %v, want none", got)
	}
}
