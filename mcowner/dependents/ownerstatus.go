package dependents

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
)

// results returns what came of each cluster.
func (a *accounting) results() []Result {
	a.o.mu.Lock()
	names := union(record.Names(a.record.Sites), a.plan.targets)
	results := make([]Result, len(names))
	for i, name := range names {
		_, targeted := slices.BinarySearch(a.plan.targets, name)
		results[i] = Result{Cluster: name, Targeted: targeted, Err: ErrPending, Since: a.plan.since}
		p := a.o.parts[name]
		if p != nil && p.asked.After(a.plan.since) { // it is a target, or can be used, since then
			results[i].Since = p.asked
		}
		if p != nil && p.done {
			done := p.result
			isAnother := p.seq < a.plan.asked || targeted && !done.Targeted // it was looked at for something else
			if isAnother && (done.Err == nil || isUnderway(done.Err)) {
				done.Err, done.Since = ErrPending, results[i].Since
			}
			results[i], results[i].Targeted = done, targeted
		}
	}
	a.o.mu.Unlock()
	for i, name := range names { // the fleet has a lock of its own
		err := a.engine.access.WhyNot(name)
		if err == nil && isUnderway(results[i].Err) {
			err = a.engine.access.WhyPaused(name)
		}
		if err != nil {
			results[i].Err, results[i].Since = err, awaySince(err, results[i].Since)
		}
		if a.unread.Err != nil {
			results[i].Err, results[i].Since = a.unread.Err, a.unread.Since
		}
	}
	a.noteStuck(results)
	return results
}

// awaySince returns since when a cluster cannot be used, as far as the fleet knows.
func awaySince(err error, otherwise time.Time) time.Time {
	if state, ok := errors.AsType[*fleet.StateError](err); ok && !state.Status.Since.IsZero() && !state.Status.Paused {
		return state.Status.Since
	}
	return otherwise
}

// writeStatus writes the results into the owner's status, unless the owner was changed since.
func (a *accounting) writeStatus(ctx context.Context, results []Result) error {
	if a.engine.cfg.status == nil {
		return nil
	}
	owner := a.plan.owner
	changed := owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	if err := a.engine.cfg.status(ctx, changed, results); err != nil {
		return fmt.Errorf("finding the owner's status: %w", err)
	}
	if equality.Semantic.DeepEqual(owner, changed) {
		return nil
	}
	ctx, cancel := a.engine.access.Bound(ctx)
	defer cancel()
	err := a.writeOwner(ctx, changed, func(ctx context.Context, patch client.Patch, by client.FieldOwner) error {
		return a.home.Cluster.GetClient().Status().Patch(ctx, changed, patch, by)
	})
	if apierrors.IsNotFound(err) && lacksStatus(ctx, a.home.Cluster, a.engine.owner.GroupVersionKind) {
		return fmt.Errorf("writing the owner's status: %w: %w", errNoStatus, err)
	}
	if notfound.Is(err, owner.GetName()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the owner's status: %w", err)
	}
	a.ownerStored(changed, a.engine.ledger.isOwn(a.home.Name(), changed))
	return nil
}

// errNoStatus says that the owner's CRD has no status subresource.
var errNoStatus = errors.New("its kind has no status subresource: add subresources.status to the CRD, or leave the field Status out")

// checkStatus returns an error if owners are in the local cluster, and what it serves of their kind has no status subresource.
// Members are not known yet: their owners have an event that says so. A type without a status is left alone: it cannot be changed, so
// it is not written.
func (c config) checkStatus(mgr mcmanager.Manager, kind schema.GroupVersionKind) error {
	owner := c.newOwner()
	_, untyped := owner.(*unstructured.Unstructured)
	typed := reflect.ValueOf(owner).Elem().FieldByName("Status").IsValid()
	if c.status == nil || !untyped && !typed || !c.ownersIn.Local && mgr.GetProvider() != nil {
		return nil
	}
	if !lacksStatus(context.Background(), mgr, kind) { // what is in the way shows when the manager starts, and the kind may be installed after that
		return nil
	}
	return fmt.Errorf("the field Status is set, and in the local cluster owners are %s: %w", kind, errNoStatus)
}

// lacksStatus reports whether an API server says that it serves a kind, and that without a status subresource.
func lacksStatus(ctx context.Context, at cluster.Cluster, kind schema.GroupVersionKind) bool {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(at.GetConfig(), at.GetHTTPClient())
	if err != nil {
		return false
	}
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
	is := func(subresource bool) func(metav1.APIResource) bool {
		return func(r metav1.APIResource) bool {
			resource, status := strings.CutSuffix(r.Name, "/status")
			return r.Kind == kind.Kind && status == subresource && !strings.Contains(resource, "/")
		}
	}
	return err == nil && slices.ContainsFunc(list.APIResources, is(false)) && !slices.ContainsFunc(list.APIResources, is(true))
}
