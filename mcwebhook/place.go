package mcwebhook

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
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
	claim  claim // of those that write
	taken  *takeovers
}

// get returns what is there, nil if nothing is.
func (p place) get(ctx context.Context) (*unstructured.Unstructured, error) {
	live := p.kind.object(p.name)
	err := p.reader.Get(ctx, client.ObjectKey{Name: p.name}, live)
	if notfound.Is(err, p.name) {
		return nil, nil //nolint:nilnil // that there is none is no error
	}
	return live, err
}

var errTheirs = errors.New("it is there already and was not made by this program: delete it, or set another mcwebhook.Options.Name")

// install writes webhooks, unless they are there, or something else keeps what is there.
func (p place) install(ctx context.Context, wanted []any) error {
	live, err := p.get(ctx)
	if err != nil {
		return err
	}
	former := p.claim
	if live != nil {
		if err := p.mayWrite(live); err != nil {
			return err
		}
		if former = claimOf(live); former == p.claim && isAs(live, wanted) {
			return nil
		}
	}
	owner := client.FieldOwner(ownerPrefix + p.name)
	if err := p.writer.Apply(ctx, client.ApplyConfigurationFromUnstructured(p.applied(wanted)), owner, client.ForceOwnership); err != nil {
		return err
	}
	if former != p.claim {
		p.taken.add(p.takeover(former))
	}
	if live, err = p.get(ctx); err != nil || live == nil || isAs(live, wanted) {
		return err
	}
	if by := claimOf(live); by != p.claim {
		return kept{by} // it was quicker
	}
	live.Object["webhooks"] = wanted // without what others have added
	return p.writer.Update(ctx, live, owner)
}

func (p place) applied(wanted []any) *unstructured.Unstructured {
	u := p.kind.object(p.name)
	u.SetLabels(map[string]string{LabelName: p.name})
	u.SetAnnotations(map[string]string{annotationProgram: p.claim.String()})
	u.Object["webhooks"] = wanted
	return u
}

// mayWrite returns an error for a configuration that something else keeps.
func (p place) mayWrite(live *unstructured.Unstructured) error {
	if !p.isOurs(live) {
		return errTheirs
	}
	if by := claimOf(live); by != p.claim && (!p.claim.mayFollow(by) || !p.taken.mayTake(p.takeover(by))) {
		return kept{by}
	}
	return nil
}

func (p place) takeover(from claim) takeover { return takeover{p.claim.Member, p.kind.Kind, from} }

// remove deletes what is there, if it is ours.
func (p place) remove(ctx context.Context) error {
	live, err := p.get(ctx)
	if err != nil || live == nil || p.mayWrite(live) != nil {
		return err
	}
	uid := live.GetUID()
	return notfound.Ignore(p.writer.Delete(ctx, live, client.Preconditions{UID: &uid}), p.name)
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
