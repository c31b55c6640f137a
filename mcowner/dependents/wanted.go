package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/internal/metadata"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// wanted is an object that is desired.
type wanted struct {
	kind remote.Kind
	obj  client.Object
	wave wave
	// shared says that it is a namespace, which is created if it is absent, and left as it is.
	shared bool
	// inUse says that all that is desired in that namespace is there.
	inUse bool
	// brings is the kind of which it is the CustomResourceDefinition, if it is one.
	brings schema.GroupKind
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
	if w.kind, w.err = p.engine.kindOf(ctx, w.obj); w.kind.GroupKind() == crdKind {
		w.brings = definedBy(w.obj)[0].GroupKind()
	}
	if w.err != nil {
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
