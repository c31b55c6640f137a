package mcwebhook

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownerPrefix begins the field manager, which [Options.Name] follows.
const ownerPrefix = "fleet-runtime-webhooks-"

// LabelName is the label of configurations in members that says by which [Options.Name] they were made.
const LabelName = "webhooks.fleet-runtime.dev/name"

// place is where a configuration of one kind is in one member.
type place struct {
	reader client.Reader // asks the API server
	writer client.Client
	kind   *kind
	name   string
}

// get returns what is there, nil if nothing is.
func (p place) get(ctx context.Context) (*unstructured.Unstructured, error) {
	live := p.kind.object(p.name)
	err := p.reader.Get(ctx, client.ObjectKey{Name: p.name}, live)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is no error
	}
	return live, err
}

var errTheirs = errors.New("it is there already and was not made by this program: delete it, or set another mcwebhook.Options.Name")

// install writes webhooks, unless they are there.
func (p place) install(ctx context.Context, wanted []any) error {
	live, err := p.get(ctx)
	if err != nil {
		return err
	}
	switch {
	case live != nil && !p.isOurs(live):
		return errTheirs
	case live != nil && isAs(live, wanted):
		return nil
	}
	applied := p.kind.object(p.name)
	applied.SetLabels(map[string]string{LabelName: p.name})
	applied.Object["webhooks"] = wanted
	owner := client.FieldOwner(ownerPrefix + p.name)
	if err := p.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), owner, client.ForceOwnership); err != nil {
		return err
	}
	if live, err = p.get(ctx); err != nil || live == nil || isAs(live, wanted) {
		return err
	}
	live.Object["webhooks"] = wanted // without what others have added
	return p.writer.Update(ctx, live, owner)
}

// remove deletes what is there, if it is ours.
func (p place) remove(ctx context.Context) error {
	live, err := p.get(ctx)
	if err != nil || live == nil || !p.isOurs(live) {
		return err
	}
	uid := live.GetUID()
	return client.IgnoreNotFound(p.writer.Delete(ctx, live, client.Preconditions{UID: &uid}))
}

// isOurs reports whether this program, or another replica of it, has applied a configuration. Others may have taken away one of the
// signs of that.
func (p place) isOurs(live *unstructured.Unstructured) bool {
	return live.GetLabels()[LabelName] == p.name || slices.ContainsFunc(live.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == ownerPrefix+p.name })
}

// isAs reports whether a configuration has these webhooks and no others.
func isAs(live *unstructured.Unstructured, wanted []any) bool {
	webhooks, _, _ := unstructured.NestedSlice(live.Object, "webhooks")
	return equality.Semantic.DeepEqual(webhooks, wanted)
}
