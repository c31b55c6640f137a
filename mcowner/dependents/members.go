package dependents

import (
	"context"
	"maps"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// members is a source. It queues owners when members change:
//
//   - all of them, at low priority, when a member has a new engagement, or other labels, or can no longer be reached, or has
//     left: dependents may have been deleted between two engagements, of which no event tells, owners may have other targets
//     now, and their status may be about the member;
//   - those that wait for the member, at any change of it.
type members struct {
	fleet  *fleet.Fleet
	memory *memory
	name   string
}

// memberSeen is what matters of a member.
type memberSeen struct {
	engagement *fleet.Engagement
	ready      bool
	labels     map[string]string
}

func (s memberSeen) same(other memberSeen) bool {
	return s.engagement == other.engagement && s.ready == other.ready && maps.Equal(s.labels, other.labels)
}

// Start implements source.TypedSource. The goroutine ends with ctx.
func (m *members) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	go m.follow(ctx, queue)
	return nil
}

func (m *members) String() string {
	return "members of the fleet, for the dependents of controller " + m.name
}

func (m *members) follow(ctx context.Context, queue workqueue.TypedRateLimitingInterface[mcreconcile.Request]) {
	before := map[fleet.ClusterName]memberSeen{}
	for change := range m.fleet.Changes(ctx) {
		name, engagement := change.Status.Name, change.Engagement
		if change.Status.State == "" {
			delete(before, name)
			m.memory.forgetOrigin(name)
			enqueueLow(queue, m.memory.all())
			continue
		}
		m.memory.present(site{name: name})
		if engagement != nil {
			m.memory.present(site{name, uidOf(engagement.Identity())})
		}
		now := memberSeen{engagement, change.Status.State == fleet.Ready, change.Status.Labels}
		if last, was := before[name]; !was || !now.same(last) {
			enqueueLow(queue, m.memory.all())
		}
		before[name] = now
		for _, req := range m.memory.waitingFor(obstacle{cluster: name}) {
			queue.Add(req)
		}
	}
}

func enqueueLow(queue workqueue.TypedRateLimitingInterface[mcreconcile.Request], requests []mcreconcile.Request) {
	q, ok := queue.(priorityqueue.PriorityQueue[mcreconcile.Request])
	for _, req := range requests {
		if ok {
			q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, req)
		} else {
			queue.Add(req)
		}
	}
}
