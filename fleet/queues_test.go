package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQueuesShowsThoseThatThereAre(t *testing.T) {
	f := New(Options{})
	stats := func(depth int) func(ClusterName) QueueStats {
		return func(name ClusterName) QueueStats {
			f.Now(name) // a queue may ask the fleet
			return QueueStats{Depth: depth, InFlight: len(name)}
		}
	}
	removeFirst := f.AddQueue("one", stats(1))
	f.AddQueue("two", stats(2))
	f.AddQueue("one", stats(3)) // the controller runs again
	removeFirst()               // which ends late
	want := map[string]QueueStats{"one": {Depth: 3, InFlight: 4}, "two": {Depth: 2, InFlight: 4}}
	if diff := cmp.Diff(want, f.Queues("name")); diff != "" {
		t.Errorf("queues (-want, +got):\n%s", diff)
	}
}

func TestAQueueThatEndedIsNotShown(t *testing.T) {
	f := New(Options{})
	f.AddQueue("one", func(ClusterName) QueueStats { return QueueStats{} })()
	if got := f.Queues("a"); len(got) != 0 {
		t.Errorf("queues: %v, want none", got)
	}
}
