package mcqueue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestARequestOfAnIdleFlowWaitsForOneOfEachBusyFlow: whatever the backlogs of the others are, and however they come and go.
func TestARequestOfAnIdleFlowWaitsForOneOfEachBusyFlow(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		o := newOrder[mcreconcile.Request](0, defaultBackgroundShare)
		o.flows = newFlows(flowOf)
		busy := 1 + rng.IntN(5)
		add := func() { o.add(req(fmt.Sprintf("a/%d-%d", rng.IntN(busy), rng.IntN(1000))), 0, 0, 0) }
		for range rng.IntN(500) {
			add()
		}
		for range rng.IntN(100) {
			if i, ok := o.take(0); ok {
				o.done(i.request)
			}
			add()
		}
		o.add(req("a/idle-1"), 0, 0, 0)
		for others := 0; ; others++ {
			i, ok := o.take(0)
			if !ok || others > busy {
				t.Fatalf("seed %d: the request of the idle flow waits for more than %d of %d busy flows", seed, others, busy)
			}
			if i.request == req("a/idle-1") {
				break
			}
			o.done(i.request)
			o.add(i.request, 0, 0, 0) // it loops
			add()
		}
	}
}

func TestNothingIsKeptOfAFlowThatIsEmpty(t *testing.T) {
	o := newOrder[mcreconcile.Request](0, defaultBackgroundShare)
	o.flows = newFlows(flowOf)
	script(t, o, "a/x-1 a/x-2 a/y-1 a/y-1:5 b/z-1 b/z-2 take:3 purge:b a/x-3 take:2")
	if len(o.flows.last) > 0 || len(o.items) > 0 {
		t.Errorf("there are %d flows and %d items, want none", len(o.flows.last), len(o.items))
	}
}

// BenchmarkQueue adds, gets and finishes one request while 10,000 others wait.
func BenchmarkQueue(b *testing.B) {
	queues := map[string]Options[mcreconcile.Request]{
		"NoFlows": {},
		"Flows":   {Flow: func(r mcreconcile.Request) string { return r.Namespace }},
		"Targets": {Target: func(r mcreconcile.Request) mcreconcile.ClusterName { return mcreconcile.ClusterName(r.Namespace) }},
	}
	for name, opts := range queues {
		for _, clusters := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/clusters=%d", name, clusters), func(b *testing.B) {
				q := New("", opts)
				defer q.ShutDown()
				for n := range 10_000 {
					r := req(fmt.Sprintf("%d/%d", n%clusters, n))
					r.Namespace = fmt.Sprint(n % 7)
					q.Add(r)
				}
				b.ReportAllocs()
				for b.Loop() {
					r, _ := q.Get()
					q.Add(r)
					q.Done(r)
				}
			})
		}
	}
}
