package mcsource

import (
	"context"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// mostWaiting is how many events of one member wait for its handler at most, as many as in controller-runtime's own channel.
const mostWaiting = 1024

// lanes hand events to the handlers of their members: those of one in order and one at a time, and none waits for another member.
type lanes[object any, request comparable] struct {
	ctx    context.Context //nolint:containedctx // the controller's
	source *channel[object, request]
	queue  workqueue.TypedRateLimitingInterface[request]

	mu sync.Mutex // guards what follows, and the fields of each lane that say so
	of map[fleet.ClusterName]*lane[object, request]
}

// lane has the events of one member. They outlast an engagement whose place another one of the same cluster takes.
type lane[object any, request comparable] struct {
	// The lock of the lanes guards these.
	engagement *fleet.Engagement // nil until a loop over changes has told of it
	waiting    []event.TypedGenericEvent[object]
	dropped    int  // since more came than may wait
	runs       bool // there is a goroutine that hands them over

	// These are the goroutine's.
	handler   eventHandler[object, request]
	handlerOf *fleet.Engagement
}

// isOfAnother reports whether what waits is for another cluster than the one with this identity. Where one of both is not known, it is
// the same for all that is known: it becomes known when the right to ask is given.
func (l *lane[object, request]) isOfAnother(identity string) bool {
	return l.engagement != nil && l.engagement.Identity() != "" && identity != "" && l.engagement.Identity() != identity
}

// follow keeps the lanes in step with the fleet, until the controller stops.
func (l *lanes[object, request]) follow() {
	for change := range l.source.fleet.Changes(l.ctx) {
		l.update(change.Status.Name, change.Engagement)
	}
}

func (l *lanes[object, request]) update(name fleet.ClusterName, e *fleet.Engagement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch of := l.of[name]; {
	case e == nil:
		// An event may have come since, of an engagement of which the next change tells.
		if status, _ := l.source.fleet.Status(name); !status.Engaged() {
			delete(l.of, name)
		}
	case e.Context().Err() != nil: // the next change tells of another
	case of == nil || of.isOfAnother(e.Identity()):
		l.of[name] = &lane[object, request]{engagement: e} // what waits is for the cluster that had the name before
	default:
		of.engagement = e
		l.runLocked(of)
	}
}

// add takes an event, unless its member is not engaged, or too many wait already.
func (l *lanes[object, request]) add(evt ClusterEvent[object]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.getLocked(evt.ClusterName)
	logger := log.FromContext(l.ctx).WithValues("cluster", evt.ClusterName)
	switch {
	case of == nil:
		logger.V(1).Info("Dropped an event of a cluster that is not engaged")
	case len(of.waiting) < mostWaiting:
		of.waiting = append(of.waiting, evt.TypedGenericEvent)
		l.runLocked(of)
	default:
		if of.dropped == 0 {
			logger.Info("Dropping events of the channel: the handler of the cluster is too slow", "waiting", len(of.waiting))
		}
		of.dropped++
	}
}

// getLocked returns the lane of a member, nil if it is not engaged. It may be engaged, or engaged anew, before follow knows.
func (l *lanes[object, request]) getLocked(name fleet.ClusterName) *lane[object, request] {
	of := l.of[name]
	if of != nil && of.engagement != nil && of.engagement.Context().Err() == nil {
		return of
	}
	status, _ := l.source.fleet.Status(name)
	switch {
	case !status.Engaged():
		return nil
	case of == nil || of.isOfAnother(status.Identity):
		of = &lane[object, request]{}
		l.of[name] = of
	}
	return of
}

// runLocked starts the goroutine of a lane that has something to do. It ends when nothing waits, or the engagement ended, whose
// drain waits for an event that is being handled.
func (l *lanes[object, request]) runLocked(of *lane[object, request]) {
	if of.runs || len(of.waiting) == 0 || of.engagement == nil {
		return
	}
	of.runs = true
	go func() {
		for l.handleNext(of) {
		}
	}()
}

// handleNext hands over one event. It returns false if there is none, and then the goroutine ends.
func (l *lanes[object, request]) handleNext(of *lane[object, request]) (more bool) {
	evt, engagement, life, leave := l.next(of)
	if leave == nil {
		return false
	}
	more = true // also after a panic, where that does not end the process
	defer leave()
	defer utilruntime.HandleCrashWithContext(life) // as for a handler of a watch
	if of.handlerOf != engagement {
		of.handler, of.handlerOf = l.source.handler(engagement.Name(), engagement.Cluster()), engagement
	}
	life = mcreconcile.WithCluster(life, engagement.Name(), engagement.Cluster())
	of.handler.Generic(life, evt, l.queue)
	return more
}

// next takes the event that is next, and joins the engagement for it. leave is nil if there is none.
func (l *lanes[object, request]) next(of *lane[object, request]) (
	evt event.TypedGenericEvent[object], e *fleet.Engagement, life context.Context, leave func(),
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.runs = false
	if l.ctx.Err() != nil || len(of.waiting) == 0 {
		return evt, nil, nil, nil
	}
	e = of.engagement
	life, leave, err := e.Join(withCluster(l.ctx, e.Name()), l.source)
	if err != nil { // the next change says what becomes of those that wait
		return evt, nil, nil, nil
	}
	of.runs = true
	evt, of.waiting[0] = of.waiting[0], evt
	of.waiting = of.waiting[1:]
	if len(of.waiting) == 0 && of.dropped > 0 {
		log.FromContext(life).Info("No event of the channel waits any more", "dropped", of.dropped)
		of.dropped = 0
	}
	return evt, e, life, leave
}
