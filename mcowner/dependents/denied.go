package dependents

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// errDenied says that an object which is not desired may not be removed.
var errDenied = errors.New("it may not be removed")

// denied is an error that is taken for errDenied: it is about what is not desired, and keeps nothing from what is.
type denied struct{ error }

// Unwrap returns both: what is too long to be told is kept by its parts.
func (d denied) Unwrap() []error { return []error{errDenied, d.error} }

// isDenied reports whether an error is only about objects that may not be removed.
func isDenied(err error) bool {
	return err != nil && first(each(err), func(one error) bool { return !errors.Is(one, errDenied) }) == nil
}

// isForbidden reports whether an API server forbids a request. What is between may say the same of any.
func isForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// deniedIn is where an owner's user has no right to remove objects. Others may write such objects of ever new names.
type deniedIn struct {
	kind      schema.GroupKind
	namespace string
}

func whereDenied(d dependent) deniedIn { return deniedIn{d.GroupKind(), d.obj.GetNamespace()} }

// denial says since when a right has been missed, and when that was seen last.
type denial struct{ since, last time.Time }

const (
	// mostDenials is how many denials are remembered of a cluster.
	mostDenials = 10_000
	// denialLasts is how long one is remembered that is not seen again.
	denialLasts = 5 * time.Minute
)

// deniedSince notes that a right is missed, and returns since when.
func (o *ownerState) deniedSince(at remote.Session, in deniedIn) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, now := o.partLocked(at.Name()), time.Now()
	d, known := p.denied[in]
	if p.denied == nil || p.deniedTo != at.Life() || !known && len(p.denied) >= mostDenials {
		p.denied, p.deniedTo, d = map[deniedIn]denial{}, at.Life(), denial{}
	}
	if now.Sub(d.last) > denialLasts {
		d.since = now
	}
	d.last = now
	p.denied[in] = d
	return d.since
}

// notDenied notes that something of a wave may be removed: what was missed of it is missed anew.
func (o *ownerState) notDenied(at remote.Session, wave []dependent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(at.Name())
	for _, d := range wave {
		delete(p.denied, whereDenied(d))
	}
}

// forbidden returns the objects that could not be removed, or written, when that was tried last.
func (o *ownerState) forbidden(name mcreconcile.ClusterName) map[types.UID]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[types.UID]bool{}
	if p := o.parts[name]; p != nil {
		for _, r := range p.result.Objects {
			if r.State == Forbidden {
				all[r.UID] = true
			}
		}
	}
	return all
}

// isGivenUp reports whether the owner is to have nothing in the cluster, and says that it waits for nothing there.
func (p *placement) isGivenUp() bool {
	return (p.asked.mode != serving || !p.asked.targeted) && p.asked.givenUp()[p.at.Name()]
}

// isCleared removes what was found in a cluster that the owner gives up, and is not in its record, and reports whether nothing is left but what may
// not be removed. To note that would bring it into the record, and out again, with each event.
func (p *placement) isCleared(ctx context.Context, policy metav1.DeletionPropagation) bool {
	if policy == "" {
		return false
	}
	going, err := p.empty(ctx, policy, &report{})
	return (err == nil || isDenied(err)) && (going == 0 || policy != metav1.DeletePropagationForeground)
}

// passesOver reports whether a wave holds up nothing else, as nothing of it may be removed: it may not be the owner's in truth. Whoever may write
// an object says of which owner and wave it is, and may delete it and keep it by a finalizer. The owner's user must have had no right to it for a
// while: what an admission webhook forbids is the owner's, for all that is known, and a right may be missed for a moment. Where the owner gives the
// cluster up, it is the same why something may not be removed, and for how long. Results and errors say it of what is being deleted, too.
func (p *placement) passesOver(ctx context.Context, wave []dependent, results []ObjectResult, errs []error) bool {
	user, err := p.engine.writers.UserOf(ctx, p.work.owner)
	givenUp, while := p.isGivenUp(), p.engine.cfg.paces.orDefaults().again
	if len(wave) == 0 || !givenUp && (err != nil || user == "") {
		return false
	}
	if p.mayGo(ctx, wave, errs, givenUp) {
		p.o.notDenied(p.at, wave)
		return false
	}
	passes := true
	for i, d := range wave {
		since := p.o.deniedSince(p.at, whereDenied(d))
		passes = passes && (givenUp || time.Since(since) >= while)
		if errs[i] == nil {
			errs[i] = fmt.Errorf("%s of %s is being deleted, and there is no right to do so: %w", d.Describe(d.obj), p.at, errDenied)
			results[i].State, results[i].Err = Forbidden, brief(errs[i])
		}
	}
	return passes
}

// mayGo reports whether something of a wave may be removed, was, or got no answer that says otherwise. Rights may be to single names, so each object
// is asked for.
func (p *placement) mayGo(ctx context.Context, wave []dependent, errs []error, givenUp bool) bool {
	for i, d := range wave { // before any right is asked for
		if !isDenied(errs[i]) && (errs[i] != nil || d.obj.GetDeletionTimestamp().IsZero()) {
			return true
		}
	}
	for i, d := range wave {
		if (errs[i] == nil || !givenUp) && remote.MayDelete(ctx, p.engine.access, p.writer, p.at, d.Kind, d.obj) {
			return true
		}
	}
	return false
}
