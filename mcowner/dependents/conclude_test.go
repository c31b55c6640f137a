package dependents

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestAnOwnerIsTriedAgainWhenTheFirstOfItsClustersNeedsIt: a cluster that is missed needs it when it is given up, and not
// at all if the owner is to have dependents there.
func TestAnOwnerIsTriedAgainWhenTheFirstOfItsClustersNeedsIt(t *testing.T) {
	t.Parallel()
	gone := &fleet.StateError{Err: fleet.ErrGone, Status: fleet.Status{Name: "gone"}}
	conflict, missed := Result{Err: &ConflictError{}}, Result{Cluster: "gone", Err: gone}
	wanted := missed
	wanted.Targeted = true
	refused := errors.New("refused")
	cases := map[string]struct {
		results  []Result
		from, to time.Duration
		err      error
	}{
		"Nothing":          {results: []Result{{}, {}}},
		"AConflict":        {results: []Result{conflict}, from: lookAgain, to: lookAgain + lookAgain/3},
		"OneThatIsMissed":  {results: []Result{missed}, from: time.Hour, to: time.Hour},
		"OneThatIsWanted":  {results: []Result{wanted}},
		"TheSoonestIsLast": {results: []Result{missed, conflict, {}, {Err: errJustReady}}, from: soon, to: soon},
		"TheSoonestFirst":  {results: []Result{{Err: errJustReady}, conflict, missed}, from: soon, to: soon},
		"AnError":          {results: []Result{{Err: refused}, conflict}, from: lookAgain, to: lookAgain + lookAgain/3, err: refused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &controller{memories: newMemory()}
				c.releaseAfter = time.Hour
				p := &pass{controller: c}
				got, err := p.conclude(t.Context(), tc.results)
				if got.RequeueAfter < tc.from || got.RequeueAfter > tc.to || !errors.Is(err, tc.err) {
					t.Errorf("it is tried again after %s (%v), want %s to %s (%v)", got.RequeueAfter, err, tc.from, tc.to, tc.err)
				}
			})
		})
	}
}

// written is a client that notes how an object was removed or released.
type written struct {
	client.Client
	deleted bool
	patch   string
}

// Delete implements client.Client.
func (w *written) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	w.deleted = o.Preconditions != nil && o.Preconditions.UID != nil && o.Preconditions.ResourceVersion != nil
	return nil
}

// Patch implements client.Client.
func (w *written) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	w.patch = string(data)
	return err
}

// TestADependentIsReleasedIfAnybodyElseMayOwnIt, and as it was read alone: another owner may have been added since.
func TestADependentIsReleasedIfAnybodyElseMayOwnIt(t *testing.T) {
	t.Parallel()
	owner := mcowner.Reference{Fleet: "fleet", Cluster: "hub", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner", UID: "1"}
	other := owner
	other.Name, other.UID = "other", "2"
	annotation := func(obj client.Object, change func(string) string) {
		annotations := obj.GetAnnotations()
		for key, value := range annotations {
			annotations[key] = change(value)
		}
		obj.SetAnnotations(annotations)
	}
	cases := map[string]struct {
		add     func(obj client.Object) error // beside the owner
		policy  metav1.DeletionPropagation
		deleted bool
	}{
		"NobodyElse":      {policy: metav1.DeletePropagationBackground, deleted: true},
		"Orphan":          {policy: metav1.DeletePropagationOrphan},
		"AnotherOwner":    {policy: metav1.DeletePropagationBackground, add: func(obj client.Object) error { return mcowner.SetOwnerReference(other, obj, "member") }},
		"AnOwnerInItsOwn": {policy: metav1.DeletePropagationBackground, add: func(obj client.Object) error { obj.SetOwnerReferences([]metav1.OwnerReference{{UID: "3"}}); return nil }},
		"OneThatIsNotReadNow": {policy: metav1.DeletePropagationBackground, add: func(obj client.Object) error {
			err := mcowner.SetOwnerReference(other, obj, "member")
			annotation(obj, func(text string) string { return strings.Replace(text, `"other"`, `{}`, 1) })
			return err
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dependent", UID: "4", ResourceVersion: "77"}}
			if err := mcowner.SetOwnerReference(owner, obj, "member"); err != nil {
				t.Fatal(err)
			}
			if tc.add != nil {
				if err := tc.add(obj); err != nil {
					t.Fatal(err)
				}
			}
			w := &written{}
			k := kind{gvk: corev1.SchemeGroupVersion.WithKind("Secret")}
			deleted, err := takeAway(t.Context(), &access{timeout: time.Minute}, w, session{name: "member"}, k, obj, []mcowner.Reference{owner}, tc.policy)
			if err != nil || deleted != tc.deleted || w.deleted != tc.deleted {
				t.Errorf("deleted: %t, %v, want %t; annotations %v", deleted, err, tc.deleted, obj.Annotations)
			}
			if !tc.deleted && !strings.Contains(w.patch, `"resourceVersion":"77"`) {
				t.Errorf("it is released whatever it has become since: %s", w.patch)
			}
		})
	}
}
