package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// TestAKindThatCannotBeNotedIsRefused, whatever MoreKinds allows, and is none of the likely ones: it would be noted for ever.
func TestAKindThatCannotBeNotedIsRefused(t *testing.T) {
	t.Parallel()
	versions := []string{"v1", "v1.1", "apps/v1.1", "v1,x", "a,b/v1"}
	desired := make([]client.Object, 0, len(versions))
	for _, version := range versions {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(version)
		u.SetKind("Gadget")
		desired = append(desired, u)
	}
	a := newAccounting(t, config{
		moreKinds: func(context.Context, schema.GroupVersionKind) error { return nil },
		desired:   func(context.Context, client.Object, Target) ([]client.Object, error) { return desired, nil },
	}, &plan{})
	for i, obj := range desired {
		_, err := a.engine.kindOf(t.Context(), obj)
		if refused := err != nil; refused != (i > 0) {
			t.Errorf("%s is refused: %t, want %t: %v", obj.GetObjectKind().GroupVersionKind(), refused, i > 0, err)
		}
	}
	gadget := desired[0].GetObjectKind().GroupVersionKind()
	if likely := a.engine.likelyKinds(t.Context(), &corev1.ConfigMap{}, "a"); !slices.Equal(likely, []schema.GroupVersionKind{gadget}) {
		t.Errorf("%v are likely, want %v", likely, gadget)
	}
}

// TestResultsHaveObjectsOfTheTypesOfKinds: who reads them relies on that. What is being deleted is no dependent any more.
func TestResultsHaveObjectsOfTheTypesOfKinds(t *testing.T) {
	t.Parallel()
	c := &engine{kinds: []remote.Kind{{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}}}}
	typed, untyped, metadata := &corev1.ConfigMap{}, &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	v1, v2 := c.kinds[0].GroupVersionKind, schema.GroupVersionKind{Version: "v2", Kind: "ConfigMap"}
	results := []ObjectResult{
		{Kind: v1, Object: typed},
		{Kind: v1},
		{Kind: v2, State: Deleting, Object: metadata},
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Gadget"}, Object: untyped},
		{Kind: v2, Object: untyped},
		{Kind: v1, State: Waiting, Object: untyped},
		{Kind: v1, State: Waiting, Object: metadata},
		{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Gadget"}, State: Failed, Object: metadata},
	}
	c.onlyOfKinds(results)
	for i, want := range []client.Object{typed, nil, metadata, untyped, nil, nil, nil, nil} {
		if got := results[i].Object; got != want {
			t.Errorf("the object of result %d is a %T, want a %T", i, got, want)
		}
	}
}

// TestTheStateOfADependentSaysWhatIsWrong: whose fault it is, and whether it passes by itself.
func TestTheStateOfADependentSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	outdated := apierrors.NewConflict(pods, "a", nil)
	forbidden := apierrors.NewForbidden(pods, "a", errors.New("no right"))
	for name, tc := range map[string]struct {
		err  error
		want State
	}{
		"another's object":                    {&ConflictError{}, Conflict},
		"another's, and it cannot be told":    {&ConflictError{Why: forbidden}, Conflict},
		"it is changed back":                  {errContended, Drifted},
		"it is deleted again":                 {errDeleted, Drifted},
		"it is brought back again":            {errRestored, Drifted},
		"it is changed during each write":     {fmt.Errorf("%w: %w", errContended, outdated), Drifted},
		"its kind is not served":              {&meta.NoKindMatchError{}, NotServed},
		"its resource is not served":          {&meta.NoResourceMatchError{}, NotServed},
		"it is not looked at yet":             {ErrPending, Waiting},
		"others come first":                   {fmt.Errorf("%w: for others", ErrWaiting), Waiting},
		"what has its place goes":             {fmt.Errorf("a: %w", errGoing), Waiting},
		"its namespace goes":                  {errClosing, Waiting},
		"a namespace that is shared goes":     {errNamespaceGoing, Waiting},
		"it was changed meanwhile":            {outdated, Waiting},
		"it was created meanwhile":            {apierrors.NewAlreadyExists(pods, "a"), Waiting},
		"a right is missing":                  {fmt.Errorf("a: %w", forbidden), Forbidden},
		"it is invalid":                       {apierrors.NewInvalid(schema.GroupKind{}, "a", nil), Failed},
		"there is no answer":                  {apierrors.NewTimeoutError("late", 1), Failed},
		"its policy makes no sense":           {errors.New("must be one of"), Failed},
		"it is not there, and its kind is":    {apierrors.NewNotFound(pods, "a"), Failed},
		"the API server takes no credentials": {apierrors.NewUnauthorized("who"), Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stateOf(tc.err); got != tc.want {
				t.Errorf("%v is %s, want %s", tc.err, got, tc.want)
			}
		})
	}
}

// TestWhatAnotherReconcilerSaysHasNoMeaningHere, where Desired returns it: it would be taken for what becomes of this one's dependents.
func TestWhatAnotherReconcilerSaysHasNoMeaningHere(t *testing.T) {
	t.Parallel()
	for _, said := range []error{errContended, errDeleted, errDenied, ErrLeaving, errPolicy} {
		for _, waits := range []bool{false, true} {
			p, err := &placement{awaits: waits}, fmt.Errorf("reading: %w", said)
			if waits {
				err = fmt.Errorf("%w: %w", ErrWaiting, err)
			}
			got := p.whyUnclear(err)
			if errors.Is(got, said) || errors.Is(got, ErrWaiting) != waits || !strings.Contains(got.Error(), said.Error()) {
				t.Errorf("%v is %v", err, got)
			}
		}
	}
	own := errors.New("the user's own")
	if got := (&placement{}).whyUnclear(own); !errors.Is(got, own) {
		t.Errorf("%v is %v", own, got)
	}
}
