package remote

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// written is a client that notes how an object was removed or released.
type written struct {
	client.Client
	deleted bool
	policy  metav1.DeletionPropagation
	patch   string
	err     error // which it answers
}

// Delete implements client.Client.
func (w *written) Delete(_ context.Context, _ client.Object, opts ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(opts)
	w.deleted = o.Preconditions != nil && *o.Preconditions.UID == "4" && *o.Preconditions.ResourceVersion == "77"
	w.policy = *o.PropagationPolicy
	return w.err
}

// Patch implements client.Client.
func (w *written) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(obj)
	w.patch = string(data)
	if w.err != nil {
		return w.err
	}
	return err
}

// TestADependentIsReleasedIfAnybodyElseMayOwnIt, and as it was read alone: another owner may have been added since.
func TestADependentIsReleasedIfAnybodyElseMayOwnIt(t *testing.T) {
	t.Parallel()
	in := mcowner.ByName("member")
	owner := mcowner.Reference{Fleet: "fleet", Cluster: "hub", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner", UID: "1"}
	other := owner
	other.Name, other.UID = "other", "2"
	nothing := func(*testing.T, client.Object) {}
	addOther := func(t *testing.T, obj client.Object) {
		t.Helper()
		if err := mcowner.SetOwnerReference(other, obj, in); err != nil {
			t.Fatal(err)
		}
	}
	says := func(policy string) func(*testing.T, client.Object) {
		return func(_ *testing.T, obj client.Object) {
			obj.GetAnnotations()[mcowner.DeletionPolicyAnnotation] = policy
		}
	}
	const background = metav1.DeletePropagationBackground
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "dependent")
	cases := map[string]struct {
		add     func(*testing.T, client.Object) // beside the owner
		policy  metav1.DeletionPropagation
		owners  []mcowner.Reference // besides, that go as well
		err     error
		deleted bool
	}{
		"NobodyElse":         {add: nothing, policy: background, deleted: true},
		"Foreground":         {add: nothing, policy: metav1.DeletePropagationForeground, deleted: true},
		"GoneMeanwhile":      {add: nothing, policy: background, deleted: true, err: gone},
		"Orphan":             {add: nothing, policy: metav1.DeletePropagationOrphan},
		"ItIsToStay":         {add: says("Orphan"), policy: background},
		"ItIsNotToStay":      {add: says("Background"), policy: background, deleted: true},
		"AnotherOwner":       {add: addOther, policy: background},
		"BothOwnersGo":       {add: addOther, policy: background, owners: []mcowner.Reference{other}, deleted: true},
		"AnOwnerInItsOwn":    {policy: background, add: func(_ *testing.T, obj client.Object) { obj.SetOwnerReferences([]metav1.OwnerReference{{UID: "3"}}) }},
		"ItIsTheOwnerItself": {add: func(_ *testing.T, obj client.Object) { obj.SetUID(owner.UID) }, policy: background},
		"OneThatIsNotReadNow": {policy: background, add: func(t *testing.T, obj client.Object) {
			t.Helper()
			addOther(t, obj)
			for key, value := range obj.GetAnnotations() {
				obj.GetAnnotations()[key] = strings.Replace(value, `"other"`, `{}`, 1)
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dependent", UID: "4", ResourceVersion: "77"}}
			if err := mcowner.SetOwnerReference(owner, obj, in); err != nil {
				t.Fatal(err)
			}
			tc.add(t, obj)
			before := obj.DeepCopy()
			w := &written{err: tc.err}
			k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
			deleted, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, w, Session{ID: in}, k, obj, append(tc.owners, owner), tc.policy)
			if err != nil || deleted != tc.deleted || w.deleted != tc.deleted {
				t.Errorf("deleted: %t, %v, want %t; annotations %v", deleted, err, tc.deleted, obj.Annotations)
			}
			if tc.deleted && w.policy != tc.policy {
				t.Errorf("it was deleted with the policy %q, want %q", w.policy, tc.policy)
			}
			if !tc.deleted && (!strings.Contains(w.patch, `"resourceVersion":"77"`) ||
				!strings.Contains(w.patch, `"`+owner.Key()+`":null`) && !strings.Contains(w.patch, `"annotations":null`)) {
				t.Errorf("it is released whatever it has become since, or not at all: %s", w.patch)
			}
			if before.String() != obj.String() {
				t.Error("the object itself was changed, which may be the cache's")
			}
		})
	}
}

// TestAnObjectMayBeTheOwnerThatItRefersTo: this very one, or what has come in its place. Nothing of that name elsewhere is.
func TestAnObjectMayBeTheOwnerThatItRefersTo(t *testing.T) {
	t.Parallel()
	in, secrets := mcowner.ClusterID{Name: "east", UID: "u-east"}, Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner", UID: "2"}}
	there := mcowner.Reference{APIVersion: "v1", Kind: "Secret", Namespace: "default", Name: "owner", UID: "1", Cluster: "east", ClusterUID: "u-east"}
	for name, tc := range map[string]struct {
		change func(*mcowner.Reference)
		is     bool
	}{
		"what has come in its place":          {func(*mcowner.Reference) {}, true},
		"that cluster by another name":        {func(r *mcowner.Reference) { r.Cluster = "" }, true},
		"its cluster is not known":            {func(r *mcowner.Reference) { r.ClusterUID = "" }, true},
		"this very one, by another name":      {func(r *mcowner.Reference) { r.Name, r.UID = "other", "2" }, true},
		"one in another cluster of that name": {func(r *mcowner.Reference) { r.ClusterUID = "u-other" }, false},
		"one in another cluster":              {func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "west", "u-west" }, false},
		"one in a cluster that is not known":  {func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "west", "" }, false},
		"one of another name":                 {func(r *mcowner.Reference) { r.Name = "other" }, false},
		"one in another namespace":            {func(r *mcowner.Reference) { r.Namespace = "other" }, false},
		"one of another kind":                 {func(r *mcowner.Reference) { r.Kind = "ConfigMap" }, false},
	} {
		r := there
		tc.change(&r)
		if is := secrets.IsItself(obj, in, r); is != tc.is {
			t.Errorf("%s: it is the owner itself: %t", name, is)
		}
		if _, goes := release(secrets, &metav1.PartialObjectMetadata{ObjectMeta: obj.ObjectMeta}, in, []mcowner.Reference{r}); goes == tc.is {
			t.Errorf("%s: it goes without the owner: %t", name, goes)
		}
	}
}

func TestARefusalIsTold(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "dependent", nil)
	k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
	_, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, &written{err: refused}, Session{ID: mcowner.ByName("member")}, k,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dependent"}}, nil, metav1.DeletePropagationBackground)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `Secret default/dependent from cluster "member"`) {
		t.Errorf("TakeAway returned %v", err)
	}
}

// TestWhatIsNotServedIsNotGone: an API server says not found of a version that it does not serve any more, too.
func TestWhatIsNotServedIsNotGone(t *testing.T) {
	t.Parallel()
	unserved := apierrors.NewGenericServerResponse(404, "delete", schema.GroupResource{Resource: "secrets"}, "dependent", "404 page not found", 0, true)
	k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
		_, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, &written{err: unserved}, Session{ID: mcowner.ByName("member")}, k,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "dependent", UID: "4", ResourceVersion: "77"}}, nil, policy)
		if err == nil {
			t.Errorf("with the policy %s, it is taken for gone", policy)
		}
	}
}

// TestWhatHasNoNameIsNotTouched: it would be something else, in a cluster that has not listed it.
func TestWhatHasNoNameIsNotTouched(t *testing.T) {
	t.Parallel()
	k := Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Secret")}
	for _, key := range []client.ObjectKey{
		{Namespace: "default", Name: "../../../../../../yours/api/v1/namespaces/prod"}, {Namespace: "..", Name: "nodes"}, {Name: ".."},
	} {
		for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan} {
			w := &written{}
			obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "4", ResourceVersion: "77"}}
			_, err := TakeAway(t.Context(), &Access{Timeout: time.Minute}, Look{}, w, Session{ID: mcowner.ByName("member")}, k, obj, nil, policy)
			if !errors.Is(err, paths.ErrNoName) || !strings.Contains(err.Error(), `cluster "member"`) || w.deleted || w.patch != "" {
				t.Errorf("%v, with the policy %s: %v; deleted: %t, patched with %q", key, policy, err, w.deleted, w.patch)
			}
		}
	}
}
