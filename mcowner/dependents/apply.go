package dependents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/metadata"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// applyAll makes all dependents of the owner in the cluster as they are desired. Once all are, it removes the others.
func (p *placement) applyAll(ctx context.Context, done *report) {
	p.expect(ctx)
	found, unknown := p.known(ctx, p.kindsToRead())
	owned := p.controlled(found)
	target := p.target(owned)
	home := p.asked.home
	desired, unclear := p.engine.cfg.desired(mcreconcile.WithCluster(ctx, home.Name(), home.Cluster), p.asked.owner, target)
	p.awaits = errors.Is(unclear, ErrPending) || errors.Is(unclear, ErrWaiting)
	switch {
	case errors.Is(unclear, ErrPending): // nothing else brings the work back
		unclear = fmt.Errorf("finding what is desired in %s: %w: %v", p.at, ErrWaiting, unclear) //nolint:errorlint // it waits
	case unclear != nil:
		unclear = fmt.Errorf("finding what is desired in %s: %w", p.at, unclear)
	}
	if unclear != nil && len(desired) == 0 {
		done.Objects, done.Err, done.unknown = waiting(owned), unclear, p.awaits
		return
	}
	wants := p.wantedOf(ctx, desired)
	s := p.sequenceOf(wants, unclear == nil)
	wants = p.withNamespaces(wants)
	if done.kinds = p.kindsToNote(wants); len(done.kinds) > 0 {
		done.Objects, done.Err, done.again = waiting(owned), ErrPending, true
		return // nothing is created of a kind that was not noted
	}
	p.readWanted(ctx, wants, &found, unknown)
	wanted, err := p.applyInWaves(ctx, s, wants, found, unknown, done)
	p.o.keep(p.at.Name(), wanted)
	p.engine.ledger.awaitOnly(p.work.owner, p.at.Name(), wanted)
	if done.Err = together(unclear, err); unlessContended(done.Err) == nil && !done.isSuspended() {
		done.Err = together(done.Err, p.prune(ctx, found, wanted, done))
	}
	for _, why := range unknown {
		done.Err = together(done.Err, unlessUnserved(why)) // there may be some that are not desired
	}
	if len(p.unasked) > 0 {
		done.Err = together(done.Err, errUnlooked)
	}
	if unclear == nil {
		done.look = p.lookedFor(ctx, wants, found, unknown, done)
	}
}

// applyInWaves makes what is wanted so, wave by wave, and returns which that was.
func (p *placement) applyInWaves(
	ctx context.Context, s *sequence, wants []wanted, found []dependent, unknown map[schema.GroupKind]error, done *report,
) (wanted map[dependentKey]bool, err error) {
	wanted = make(map[dependentKey]bool, len(wants))
	var errs []error
	var over error // why nothing else is asked for
	p.inWaves(wants)
	s.begin(wants)
	for _, w := range wants {
		key := p.keyOf(w.kind, w.obj)
		if wanted[key] {
			errs = append(errs, fmt.Errorf("%s is desired twice", w.kind.Describe(w.obj)))
			continue
		}
		wanted[key] = true
		var result ObjectResult
		if why := cmp.Or(over, s.before(w.wave)); why != nil {
			result = p.later(w, found, why)
		} else {
			if why := s.lacking[w.obj.GetNamespace()]; why != nil {
				result = p.later(w, found, why)
			} else {
				result = p.object(ctx, w, p.comes(w, wants, unknown[w.kind.GroupKind()]))
			}
			s.note(p.at, w, result)
			p.noteReady(w, result)
			p.o.noteHung(key, remote.IsHung(result.Err))
			if p.isOver(result.Err) {
				over = fmt.Errorf("%w: %s gave no answer about %s", ErrWaiting, p.at, w.kind.Describe(w.obj))
			}
		}
		if !w.shared || result.Err != nil || result.Object != nil { // a namespace of others is nothing to tell of
			done.Objects = append(done.Objects, result)
		}
		errs = append(errs, result.Err)
	}
	done.Unready = s.unready
	return wanted, together(errs...)
}

// later returns the result of an object that is not looked at yet.
func (p *placement) later(w wanted, found []dependent, why error) ObjectResult {
	result := ObjectResult{Kind: w.kind.GroupVersionKind, Key: client.ObjectKeyFromObject(w.obj), State: Waiting, Err: why}
	key := p.keyOf(w.kind, w.obj)
	for _, d := range found {
		if p.keyOf(d.Kind, d.obj) == key {
			result.Object, result.UID = d.obj, d.obj.GetUID()
		}
	}
	return result
}

// wanted is an object that is desired.
type wanted struct {
	kind remote.Kind
	obj  client.Object
	wave wave
	// shared says that it is a namespace, which is created if it is absent, and left as it is.
	shared bool
	Policy
	err error // why nothing can be done about it
}

// wantedOf returns what is desired, with the policies that hold for it.
func (p *placement) wantedOf(ctx context.Context, desired []client.Object) []wanted {
	wants := make([]wanted, len(desired))
	for i, obj := range desired {
		wants[i] = p.want(ctx, obj)
	}
	return wants
}

func (p *placement) want(ctx context.Context, obj client.Object) (w wanted) {
	var malformed, misread error
	if w.obj, malformed = jsonValues(obj); malformed == nil {
		malformed = metadata.Check(w.obj)
	}
	if w.kind, w.err = p.engine.kindOf(ctx, w.obj); w.err != nil {
		return w
	}
	w.wave, misread = waveOf(w.kind.GroupKind(), w.obj)
	w.Policy, w.err = p.asked.policy.of(p.asked.owner, w.obj)
	if w.err = errors.Join(malformed, w.err, misread); w.err != nil {
		w.err = fmt.Errorf("%s of %s: %w", w.kind.Describe(w.obj), p.at, w.err)
	}
	return w
}

// kindOf returns the kind of an object that is desired. One of another version is of the kind as well.
func (c *engine) kindOf(ctx context.Context, obj client.Object) (remote.Kind, error) {
	gvk, err := apiutil.GVKForObject(obj, c.access.Manager.GetScheme())
	if err != nil {
		return remote.Kind{}, err
	}
	for _, k := range c.kinds {
		if k.GroupKind() == gvk.GroupKind() {
			return k, nil
		}
	}
	if c.cfg.moreKinds == nil {
		return remote.Untyped(gvk), fmt.Errorf("a dependent of kind %s is desired, which is not one of the controller's Kinds", gvk)
	}
	if !record.IsKind(gvk) { // it would not be read as it was noted, and noted again and again
		return remote.Untyped(gvk), fmt.Errorf("a dependent of kind %s is desired, which is no name that an API server has for a kind", gvk)
	}
	if err := c.cfg.moreKinds(ctx, gvk); err != nil {
		return remote.Untyped(gvk), fmt.Errorf("a dependent of kind %s is desired: %w", gvk, err)
	}
	return remote.Untyped(gvk), nil
}

// kindsToNote returns the kinds of what is wanted that are to be noted first. It refuses what is of another kind than those that were noted,
// if these are as many as an owner can note.
func (p *placement) kindsToNote(wants []wanted) []schema.GroupVersionKind {
	more := newKinds(p.asked.noted, wants)
	if len(p.asked.noted) < record.MostKinds {
		return more
	}
	for i, w := range wants {
		if w.err == nil && hasKind(more, w.kind.GroupKind()) {
			wants[i].err = fmt.Errorf("%s of %s is desired, and the owner has dependents of %d other kinds already, which is the most",
				w.kind.Describe(w.obj), p.at, record.MostKinds)
		}
	}
	return nil
}

// newKinds returns the kinds of what is wanted, and can be had, that are not among those that were noted.
func newKinds(noted []schema.GroupVersionKind, wants []wanted) []schema.GroupVersionKind {
	var more []schema.GroupVersionKind
	for _, w := range wants {
		isKind := func(k schema.GroupVersionKind) bool { return k.GroupKind() == w.kind.GroupKind() }
		if w.err == nil && !slices.ContainsFunc(noted, isKind) && !slices.ContainsFunc(more, isKind) {
			more = append(more, w.kind.GroupVersionKind)
		}
	}
	return more
}

// waiting returns the results of dependents that were not looked at.
func waiting(all []dependent) []ObjectResult {
	results := make([]ObjectResult, len(all))
	for i, d := range all {
		results[i] = ObjectResult{
			Kind: d.GroupVersionKind, Key: client.ObjectKeyFromObject(d.obj), UID: d.obj.GetUID(), State: Waiting, Err: ErrPending, Object: d.obj,
		}
	}
	return results
}

// onlyOfKinds takes from results the objects that are not of their type of Kinds, as [Result.Dependents] promises: those that were read in
// another version, as the cluster serves no other, or as metadata.
func (c *engine) onlyOfKinds(results []ObjectResult) {
	for i, r := range results {
		k := c.kindNoted(r.Kind)
		if r.Object != nil && r.State != Deleting && c.isFixed(k) && reflect.TypeOf(r.Object) != reflect.TypeOf(k.Proto) {
			results[i].Object = nil
		}
	}
}

// controlled returns those of which the owner is the controller.
func (p *placement) controlled(found []dependent) (owned []dependent) {
	for _, d := range found {
		if controller, ok := d.ControllerOf(d.obj, p.at.ID); ok && controller.Same(p.asked.ref) {
			owned = append(owned, d)
		}
	}
	return owned
}

// target describes the cluster to the user's function.
func (p *placement) target(owned []dependent) Target {
	t := Target{Cluster: p.at.Name(), Labels: p.engine.access.LabelsOf(p.at.Name()), RESTMapper: p.engine.access.Mapper(p.at)}
	for _, d := range owned {
		t.Dependents = append(t.Dependents, d.obj)
	}
	return t
}

// object makes one dependent as it is desired. unknown is why its kind cannot be read, if that is so.
func (p *placement) object(ctx context.Context, w wanted, unknown error) ObjectResult {
	result := ObjectResult{Kind: w.kind.GroupVersionKind, Key: client.ObjectKeyFromObject(w.obj)}
	var obj client.Object
	if result.Err = cmp.Or(w.err, unknown); result.Err == nil {
		obj, result.State, result.Err = p.make(ctx, w)
	}
	result.Err = brief(p.unquoted(w.kind, result.Err, w.obj, obj))
	if obj != nil {
		result.Object, result.UID = obj, obj.GetUID()
	}
	if result.Err != nil {
		result.State = stateOf(result.Err)
	}
	key := p.keyOf(w.kind, w.obj)
	if result.State == Conflict || errors.Is(result.Err, errGoing) {
		p.engine.ledger.await(p.work.owner, key) // until what has its place is changed, or gone
	} else {
		p.engine.ledger.settled(p.work.owner, key)
	}
	return result
}

// make applies one dependent, or shares one. A panic of what its type does is its error.
func (p *placement) make(ctx context.Context, w wanted) (obj client.Object, state State, err error) {
	defer remote.Recovered(ctx, &err)
	if w.shared {
		return p.share(ctx, w)
	}
	return p.apply(ctx, w)
}

// stateOf returns the state of a dependent about which something went wrong.
func stateOf(err error) State {
	switch {
	case isConflict(err):
		return Conflict
	case errors.Is(err, errContended):
		return Drifted
	case isPassing(err):
		return Waiting
	case isUnserved(err):
		return NotServed
	case apierrors.IsForbidden(err):
		return Forbidden
	default:
		return Failed
	}
}

// isTerminating reports whether an error says that a namespace is being deleted, in which nothing can be created.
func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || errors.Is(err, errNamespaceGoing)
}

// isUnserved reports whether an error says that a cluster does not serve a kind.
func isUnserved(err error) bool { return meta.IsNoMatchError(err) }

func unlessUnserved(err error) error {
	if isUnserved(err) {
		return nil
	}
	return err
}

// prune removes what is not desired. What is there in two groups, as the API server serves its kind in both, is desired in either.
func (p *placement) prune(ctx context.Context, found []dependent, wanted map[dependentKey]bool, done *report) error {
	unwanted := slices.DeleteFunc(slices.Clone(found), func(d dependent) bool {
		isDesired := func(r ObjectResult) bool { return r.UID == d.obj.GetUID() }
		return wanted[p.keyOf(d.Kind, d.obj)] || slices.ContainsFunc(done.Objects, isDesired)
	})
	now, _ := p.toGo(unwanted)
	if slices.ContainsFunc(now, func(d dependent) bool { return d.obj.GetDeletionTimestamp().IsZero() }) {
		if err := p.permit(); err != nil {
			for _, d := range unwanted {
				result := deleting(d)
				result.State, result.Err = Waiting, err
				done.Objects = append(done.Objects, result)
			}
			return err
		}
	}
	return together(p.removeWave(ctx, unwanted, metav1.DeletePropagationBackground, done), p.calmBut(unwanted))
}

// removeWave takes the owner from dependents, from those of the last wave alone if there are several.
func (p *placement) removeWave(ctx context.Context, all []dependent, policy metav1.DeletionPropagation, done *report) error {
	now, later := p.toGo(all)
	if policy == metav1.DeletePropagationOrphan {
		now, later = all, nil
	}
	results := make([]ObjectResult, len(now))
	for i, d := range now {
		results[i] = deleting(d)
	}
	errs := make([]error, len(now))
	for _, i := range rand.Perm(len(now)) { //nolint:gosec // it hides nothing; else those that hang would hold up the same ones each time
		d := now[i]
		if d.obj.GetDeletionTimestamp().IsZero() || policy == metav1.DeletePropagationOrphan {
			errs[i] = p.remove(ctx, d.Kind, d.obj, policy, false)
			if isContended(errs[i]) {
				results[i].State, results[i].Err = stateOf(errs[i]), errs[i]
			}
			if p.isOver(errs[i]) {
				break
			}
		}
	}
	if policy != metav1.DeletePropagationOrphan {
		done.Objects = append(done.Objects, results...)
	}
	for _, d := range later {
		result := deleting(d)
		result.State, result.Err = Waiting, p.whyLater(now)
		done.Objects = append(done.Objects, result)
	}
	err := together(errs...)
	if err == nil && len(later) > 0 { // the events of those that go now come back here
		err = fmt.Errorf("%d dependents in %s go once those of later waves are gone: %w", len(later), p.at, p.whyLater(now))
	}
	return err
}

func deleting(d dependent) ObjectResult {
	return ObjectResult{
		Kind: d.GroupVersionKind, Key: client.ObjectKeyFromObject(d.obj), UID: d.obj.GetUID(), State: Deleting, Object: d.obj,
	}
}

func (p *placement) keyOf(k remote.Kind, obj client.Object) dependentKey {
	return dependentKey{cluster: p.at.Name(), kind: k.GroupKind(), name: client.ObjectKeyFromObject(obj)}
}
