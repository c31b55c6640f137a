package dependents

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// errDenied says that an object which is not desired may not be removed.
var errDenied = errors.New("it may not be removed")

// isDenied reports whether an error is only about objects that may not be removed.
func isDenied(err error) bool {
	return err != nil && first(each(err), func(one error) bool { return !errors.Is(one, errDenied) }) == nil
}

// isForbidden reports whether an API server forbids a request. What is between may say the same of any.
func isForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// deniedIn is where objects may not be removed: rights are by kind and namespace, and others may write objects of ever new names.
type deniedIn struct {
	kind      schema.GroupKind
	namespace string
}

func whereDenied(d dependent) deniedIn { return deniedIn{d.GroupKind(), d.obj.GetNamespace()} }

// denials are where objects may not be removed, by since when.
type denials map[deniedIn]time.Time

// lastDenied returns what could not be removed when that was tried last.
func (o *ownerState) lastDenied(name mcreconcile.ClusterName) denials {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p := o.parts[name]; p != nil {
		return p.denied // which is not changed
	}
	return nil
}

// noteDenied notes what could not be removed now.
func (o *ownerState) noteDenied(name mcreconcile.ClusterName, now denials) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partLocked(name).denied = now
}

// note notes what came of a wave, after what was known before.
func (all denials) note(before denials, wave []dependent, errs []error) {
	for i, d := range wave {
		if !isDenied(errs[i]) {
			continue
		}
		in := whereDenied(d)
		if all[in] = before[in]; all[in].IsZero() {
			all[in] = time.Now()
		}
	}
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
// an object says of which owner and wave it is, and may delete it and keep it by a finalizer. It must have been so for a while, and the owner's
// user must have no right to it: what an admission webhook forbids is the owner's, for all that is known. Where the owner gives the cluster up, it
// is the same why it may not be removed, and for how long. Results and errors say it of what is being deleted, too.
func (p *placement) passesOver(ctx context.Context, wave []dependent, before denials, results []ObjectResult, errs []error) bool {
	user, err := p.engine.writers.UserOf(ctx, p.work.owner)
	givenUp, while := p.isGivenUp(), p.engine.cfg.paces.orDefaults().again
	if len(wave) == 0 || !givenUp && (err != nil || user == "") {
		return false
	}
	for i, d := range wave { // before any is asked for
		going := d.obj.GetDeletionTimestamp()
		if !isDenied(errs[i]) && (errs[i] != nil || going.IsZero() || time.Since(going.Time) < while) {
			return false
		}
	}
	for i, d := range wave {
		if (errs[i] == nil || !givenUp) && remote.MayDelete(ctx, p.engine.access, p.writer, p.at, d.Kind, d.obj) {
			return false
		}
	}
	passes := true
	for i, d := range wave {
		if errs[i] == nil {
			errs[i] = fmt.Errorf("%s of %s is being deleted, and there is no right to do so: %w", d.Describe(d.obj), p.at, errDenied)
			results[i].State, results[i].Err = Forbidden, brief(errs[i])
		}
		since := before[whereDenied(d)]
		passes = passes && (givenUp || !since.IsZero() && time.Since(since) >= while)
	}
	return passes
}
