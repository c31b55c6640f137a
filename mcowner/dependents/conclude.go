package dependents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	// soon is when an owner is reconciled again that was outdated.
	soon = 100 * time.Millisecond
	// lookAgain is when it is looked whether an object is gone, in case that no event tells of it.
	lookAgain = 15 * time.Second
)

// errGoing says that an object must be gone first.
var errGoing = errors.New("being deleted")

// errJustReady says that a cluster became ready in the middle of a reconcile.
var errJustReady = fmt.Errorf("%w: it has just become so", fleet.ErrNotReady)

// conclude decides from the results of the clusters when to reconcile again, and what counts as an error.
func (p *pass) conclude(ctx context.Context, results []Result) (reconcile.Result, error) {
	errs := make([]error, 0, 1+len(results))
	errs = append(errs, p.writeStatus(ctx, results))
	var again time.Duration
	for _, r := range results {
		after, err := p.follow(r)
		errs = append(errs, err)
		if after > 0 && (again == 0 || after < again) {
			again = after
		}
	}
	return reconcile.Result{RequeueAfter: again}, errors.Join(errs...)
}

// follow says when to try again in one cluster, and returns what is an error of the reconcile: what is waited for is none.
func (p *pass) follow(r Result) (after time.Duration, err error) {
	_, conflict := errors.AsType[*ConflictError](r.Err)
	_, replaced := errors.AsType[*ReplacedError](r.Err)
	switch {
	case r.Err == nil:
		return 0, nil
	case errors.Is(r.Err, errJustReady), isOutdated(r.Err):
		return soon, nil
	case isAway(r.Err), replaced:
		return p.untilRelease(r), nil // the members' source brings the owner back when the cluster is
	case conflict, errors.Is(r.Err, errGoing):
		return lookAgain + rand.N(lookAgain/3), nil //nolint:gosec // it hides nothing
	default:
		return 0, r.Err
	}
}

// unlessOutdated returns an error of storing an owner, and a requeue in place of one that says that it was outdated.
func unlessOutdated(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: soon}, nil // the cache has another version soon
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// isReleased reports whether a cluster no longer holds up anything, as the declared policy says.
func (p *pass) isReleased(name mcreconcile.ClusterName, err error) bool {
	return isMissing(err) && p.isOverdue(site{name: name})
}

// isOverdue reports whether a cluster has been missed for so long that it no longer holds up anything.
func (p *pass) isOverdue(s site) bool {
	return p.releaseAfter > 0 && p.memories.missingFor(s) >= p.releaseAfter
}

// untilRelease returns how long a cluster goes on to hold up the owner, zero if there is no end to it.
func (p *pass) untilRelease(r Result) time.Duration {
	if p.releaseAfter <= 0 || r.Targeted {
		return 0
	}
	missing := []site{{name: r.Cluster}}
	if replaced, ok := errors.AsType[*ReplacedError](r.Err); ok {
		missing = nil
		for _, identity := range replaced.Before {
			missing = append(missing, site{r.Cluster, identity})
		}
	} else if !isMissing(r.Err) {
		return 0
	}
	var until time.Duration
	for _, s := range missing {
		until = max(until, soon, p.releaseAfter-p.memories.missingFor(s))
	}
	return until
}

// isMissing reports whether an error says that a cluster is not in the fleet.
func isMissing(err error) bool {
	return errors.Is(err, fleet.ErrGone) || errors.Is(err, fleet.ErrUnknown)
}

func (p *pass) tellReleased(s site, why error) {
	p.emit(corev1.EventTypeWarning, EventReleased, "Delete", about(s.name, string(s.identity)), fmt.Sprintf(
		"The owner no longer waits for %s; dependents there are left: %v", clusterText(s.name), why))
}

// reasonOf returns the reason of the event that tells of an error, empty if it is no news to a user.
func reasonOf(err error) string {
	_, conflict := errors.AsType[*ConflictError](err)
	_, replaced := errors.AsType[*ReplacedError](err)
	switch {
	case errors.Is(err, errJustReady), isOutdated(err), errors.Is(err, errGoing):
		return ""
	case conflict:
		return EventConflict
	case replaced:
		return EventReplaced
	case isAway(err):
		return EventClusterNotReady
	case apierrors.IsForbidden(err):
		return EventForbidden
	default:
		return EventFailed
	}
}

// union returns the names of both, ordered, each once.
func union(a, b []mcreconcile.ClusterName) []mcreconcile.ClusterName {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

func hasFinalizer(owner client.Object, r record) bool {
	return controllerutil.ContainsFinalizer(owner, r.finalizer)
}
