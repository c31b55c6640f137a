package mcsource

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// Replayer is a source of a controller that can tell all of one member once more, as is done when it leaves. The sources of [Fleet],
// [Clusters] and [TypedOnDemand] are.
type Replayer interface {
	// Replay returns when handlers have had every object of the member once more, with those whose events come meanwhile. A
	// member for which the source does not run has none. If the source has not started, it waits for that. It returns an error if
	// ctx ends before.
	//
	// The source of the member is made and started a second time, and the first one is stopped when that is done. One with a
	// method WaitForSync, as controller-runtime's have, is waited for; of another one it is not known when handlers have had all.
	// Kinds that the member does not serve have no objects. Those that may not be listed there are not waited for any more when
	// that has been so for ten seconds.
	Replay(ctx context.Context, e *fleet.Engagement) error
}

// replaying is the source of one member that is run a second time.
type replaying[request comparable] struct {
	fleet      *fleet.Fleet
	ctx        context.Context //nolint:containedctx // the life of the controller
	what       fmt.Stringer
	engagement *fleet.Engagement
	each       TypedSource[request]
	queue      workqueue.TypedRateLimitingInterface[request]
}

// again runs a source a second time, until stop is called, and returns when its handlers have had all.
func again[request comparable](ctx context.Context, r replaying[request]) (stop context.CancelFunc, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	begun := make(chan source.TypedSource[request], 1)
	stop, err = attach(r.ctx, r.what, r.engagement, r.each, r.queue, func(started source.TypedSource[request]) { begun <- started })
	if err != nil {
		return nil, err
	}
	select {
	case started := <-begun:
		err = r.await(ctx, started)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// await returns when the handlers of a source have had all objects, or there is no such kind, or they may not be listed.
func (r replaying[request]) await(ctx context.Context, started source.TypedSource[request]) error {
	syncing, ok := started.(source.TypedSyncingSource[request])
	if !ok {
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	synced := make(chan struct{})
	var err error
	go func() { // ends with ctx
		defer close(synced)
		err = syncing.WaitForSync(ctx)
	}()
	pauses := retry.PausesIn(r.engagement.Context())
	for retry.Pause(ctx, &pauses, synced) {
		select {
		case <-synced:
			return err
		default:
			if r.isHopeless(started) {
				return nil
			}
		}
	}
	return context.Cause(ctx)
}

// refusedFor is how long a member has refused to list a kind when that is believed. A server that has just started may refuse
// what it allows.
const refusedFor = 10 * time.Second

// isHopeless reports whether the kind of a source is known not to be served by the member, or may not be listed there.
func (r replaying[request]) isHopeless(started source.TypedSource[request]) bool {
	of, ok := started.(interface {
		kindIn() (gvk schema.GroupKind, ok bool)
	})
	if !ok {
		return false
	}
	kind, ok := of.kindIn()
	status, _ := r.fleet.Status(r.engagement.Name())
	return ok && slices.ContainsFunc(status.NotSynced, func(n fleet.NotSynced) bool {
		refused := n.Reason == fleet.ReasonForbidden && time.Since(n.Since) > refusedFor
		return schema.GroupKind(n.Kind) == kind && (n.Reason == fleet.ReasonNoKind || refused)
	})
}

// kindIn returns the kind that is watched in the member itself.
func (k *engagedKind[object, request]) kindIn() (kind schema.GroupKind, ok bool) {
	gvk, err := apiutil.GVKForObject(k.obj, k.cluster.GetScheme())
	return gvk.GroupKind(), err == nil && k.in == nil
}
