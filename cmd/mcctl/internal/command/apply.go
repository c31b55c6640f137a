package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
)

const fieldManager = client.FieldOwner("mcctl")

// Results of apply.
const (
	created   = "created"
	changed   = "changed"
	unchanged = "unchanged"
)

// applier applies objects for a member, one after the other.
type applier struct {
	mark     mark
	dryRun   bool
	progress progress
	// imagined has what a dry run would have done to objects, by the name of the side before theirs.
	imagined map[string]string
}

func newApplier(mark mark, dryRun bool, progress progress) applier {
	return applier{mark, dryRun, progress, map[string]string{}}
}

func (a applier) apply(ctx context.Context, to *reached, objects ...client.Object) error {
	for _, obj := range objects {
		err := a.progress.step(to.name+": "+describe(obj), func() (string, error) {
			result, err := a.one(ctx, to, obj)
			return a.told(result), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// told is a result as kubectl tells it.
func (a applier) told(result string) string {
	if a.dryRun {
		return result + " (server dry run)"
	}
	return result
}

// one applies one object. In a dry run the server finds neither the namespace nor the role that this would have made before it, and judges a
// binding by the rules that its role has without it.
func (a applier) one(ctx context.Context, to *reached, obj client.Object) (string, error) {
	result, err := to.apply(ctx, obj, a.mark, a.dryRun)
	if !a.dryRun {
		return result, err
	}
	would := func(o client.Object) string { return a.imagined[to.name+" "+describe(o)] }
	isCreated := func(o client.Object) bool { return would(o) == created }
	role := membership.RoleOf(obj)
	switch {
	case apierrors.IsNotFound(err) && slices.ContainsFunc(membership.Needs(obj), isCreated):
		result, err = created, nil
	case lacksGranted(err) && role != nil && would(role) == changed:
		err = nil // the caller has been asked for the new rules: see mayGrant
	}
	if err == nil {
		a.imagined[to.name+" "+describe(obj)] = result
	}
	return result, err
}

// lacksGranted reports whether a server has refused a role or binding, since the caller has not all that it gives. Anything else that is
// forbidden has another message.
func lacksGranted(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held")
}

// takes makes sure that a side takes all objects, as far as dry runs tell. It writes nothing.
func (r *reached) takes(ctx context.Context, objects []client.Object, mark mark) error {
	if err := r.tries(ctx, objects, mark); err != nil {
		return fmt.Errorf("nothing was written, since %s: %w", r.notTaken(err), err)
	}
	return nil
}

// notTaken says that a side has not taken all, by the error of that. Not each error is a refusal.
func (r *reached) notTaken(err error) string {
	if errors.Is(err, errTheirs) {
		return "the " + r.name + " has something in the way"
	}
	status := apierrors.APIStatus(nil)
	isStatus := errors.As(err, &status)
	if isStatus && status.Status().Code >= http.StatusInternalServerError || !isStatus && !meta.IsNoMatchError(err) || apierrors.IsTooManyRequests(err) {
		return "it is not known whether the " + r.name + " takes all of it"
	}
	return "the " + r.name + " refuses a part of it"
}

// tries applies objects by dry runs.
func (r *reached) tries(ctx context.Context, objects []client.Object, mark mark) error {
	return newApplier(mark, true, newProgress(io.Discard)).apply(ctx, r, objects...)
}

// apply makes an object what obj says, and says what became of it, or beside an error what was tried. What was there before, and was not
// made for the member, stays without the labels by which it would be deleted when the member leaves. A role or binding of others is not
// written, and is an error if it does not give what obj says.
func (r *reached) apply(ctx context.Context, obj client.Object, mark mark, dryRun bool) (string, error) {
	desired, err := applied(obj)
	if err != nil {
		return "", err
	}
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(desired.GroupVersionKind())
	err = r.Get(ctx, client.ObjectKeyFromObject(desired), before)
	exists := err == nil
	if notfound.Ignore(err, desired.GetName()) != nil {
		return "", r.failed("read", desired, err)
	}
	if exists && leftAlone(obj, before, mark) {
		return unchanged, r.gives(before, desired, mark)
	}
	if _, is := obj.(*accessv1alpha1.ClusterAccess); !is && (!exists || mark.isOn(before)) { // its labels are the member's
		mark.put(desired)
	}
	options := []client.ApplyOption{fieldManager, client.ForceOwnership}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	after, result := desired.DeepCopy(), changed
	if !exists {
		result = created
	}
	if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), options...); err != nil {
		return result, r.failed("apply", desired, err)
	}
	if exists && (!dryRun && after.GetResourceVersion() == before.GetResourceVersion() || dryRun && same(before, after)) {
		result = unchanged
	}
	return result, nil
}

// leftAlone reports whether an object that is there is not written: a role or binding of others, who may rely on what it gives, and what is said of
// by its name alone.
func leftAlone(obj client.Object, before metav1.Object, mark mark) bool {
	return givesRights(obj) && !mark.isOn(before) || membership.IsBare(obj)
}

// givesRights reports whether an object is a role or a binding.
func givesRights(obj client.Object) bool {
	return obj.GetObjectKind().GroupVersionKind().Group == rbacv1.GroupName
}

// grant is what a role or a binding gives, and to whom.
type grant struct {
	Rules           []rbacv1.PolicyRule     `json:"rules"`
	AggregationRule *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef         rbacv1.RoleRef          `json:"roleRef"`
	Subjects        []rbacv1.Subject        `json:"subjects"`
}

// errTheirs is in the error of a role or a binding that is in the way.
var errTheirs = errors.New("others have made it, and otherwise than FILE or mcctl would")

// gives makes sure that a role or binding of others gives what is desired.
func (r *reached) gives(theirs, desired *unstructured.Unstructured, mark mark) error {
	var is, want grant
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(theirs.Object, &is)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, &want)
	}
	if err != nil {
		return r.failed("read", desired, err)
	}
	if equality.Semantic.DeepEqual(is, want) {
		return nil
	}
	cure := "change it by what has made it, give yours another name, or delete that one if nothing makes it again"
	if mark.printedOn(theirs) {
		cure = "it is of what --dry-run=client prints: let that print it anew, and apply it by the tool that has applied it before"
	}
	return fmt.Errorf("%s in the %s (%s): %w; %s", describe(desired), r.name, r.config.Host, errTheirs, cure)
}

// same reports whether a dry run has changed nothing: it has no version of its own.
func same(before, after *unstructured.Unstructured) bool {
	a, b := before.DeepCopy(), after.DeepCopy()
	for _, obj := range []*unstructured.Unstructured{a, b} {
		obj.SetManagedFields(nil)
		obj.SetResourceVersion("")
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// applied is what is sent of an object: nothing that the server sets.
func applied(obj client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "status")
	return u, nil
}

// failed says what was tried on which cluster.
func (r *reached) failed(verb string, obj client.Object, err error) error {
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("%s %s in the %s (%s): it does not serve the kind; install its CRD: %w", verb, describe(obj), r.name, r.config.Host, err)
	}
	return fmt.Errorf("%s %s in the %s (%s): %w", verb, describe(obj), r.name, r.config.Host, err)
}

// describe names an object as people write it.
func describe(obj client.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if obj.GetNamespace() == "" {
		return kind + " " + obj.GetName()
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}
