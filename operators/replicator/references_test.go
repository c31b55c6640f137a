package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// cached are objects of the hub by their names, read as from a cache.
type cached map[string]*unstructured.Unstructured

// Get implements client.Reader.
func (all cached) Get(_ context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	obj := all[key.Name]
	if obj == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	o := (&client.GetOptions{}).ApplyOptions(opts)
	if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
		obj = obj.DeepCopy()
	}
	*out.(*unstructured.Unstructured) = *obj //nolint:forcetypeassert // sources are read as such
	return nil
}

// List implements client.Reader.
func (all cached) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

// secretOf returns a Secret of the hub that has so many keys of four characters.
func secretOf(name string, keys int) *unstructured.Unstructured {
	data := make(map[string]any, keys)
	for i := range keys {
		data[fmt.Sprintf("%c%03x", 'g'+rune(i>>12), i&0xfff)] = ""
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data, "status": map[string]any{"is": "nobody's"},
		"metadata": map[string]any{
			"namespace": tenant, "name": name, "uid": name, "resourceVersion": "7",
			"labels": map[string]any{v1alpha1.SourceLabel: "true", "a": "b"}, "annotations": map[string]any{lastApplied: "{}"},
			"finalizers": []any{"example.com/of-the-hub"},
		},
	}}
}

// Secrets of keys of four characters take 139 bytes for each.
const (
	keysThatFit  = mostOfAll / 150
	keysTooMany  = mostOfAll / 130 // they are together no megabyte as JSON
	keysTooLarge = 130_000
)

// copiesOf refers to an object of the hub so many times, as different ones.
func copiesOf(name string, n int) *v1alpha1.Replicator {
	r := replicator("r", nil)
	for i := range n {
		r.Spec.References = append(r.Spec.References, v1alpha1.Reference{Kind: "Secret", Name: name, As: fmt.Sprintf("copy-%d", i)})
	}
	return r
}

// controllerOf returns one with these Secrets in the hub.
func controllerOf(t *testing.T, secrets ...*unstructured.Unstructured) *controller {
	t.Helper()
	hub := cached{}
	for _, secret := range secrets {
		hub[secret.GetName()] = secret
	}
	c := &controller{hub: hub, sources: []schema.GroupVersionKind{{Version: "v1", Kind: "Secret"}}}
	t.Cleanup(c.children.end)
	return c
}

// made returns how many bytes something allocates.
func made(do func()) int {
	before := allocated()
	do()
	return int(allocated() - before)
}

// TestReferencesWithoutRoomCostNothing: 50 to one Secret of 130,000 keys took seconds and a gigabyte for each target, again and again.
func TestReferencesWithoutRoomCostNothing(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	large, many, fits := secretOf("large", keysTooLarge), secretOf("many", keysTooMany), secretOf("fits", keysThatFit)
	copied := made(func() { fits.DeepCopy() })
	c := controllerOf(t, large, many, fits)
	busy := copiesOf("fits", 1)
	busy.Namespace = "busy"
	busy.Spec.Overrides = []v1alpha1.Override{{MergePatch: rawJSON(`{"metadata":{"labels":{"a":"c"}}}`)}}
	for range mostWorkers {
		c.children.ask(busy.Namespace)
	}
	for name, tc := range map[string]struct {
		*v1alpha1.Replicator

		objects int
		err     error
		most    int // bytes, of which the errors take some
	}{
		"none of which fits by itself":    {copiesOf("many", 50), 0, errTooMuchOfAll, copied / 3},
		"to more than an object may have": {copiesOf("large", 50), 0, errTooMuch, copied / 3},
		"one of which has room":           {copiesOf("fits", 50), 1, errTooMuchOfAll, copied * 3 / 2},
		"that have no turn":               {busy, 0, errBusy, copied / 3},
	} {
		measure := func() (all []client.Object, err error) {
			return c.desired(t.Context(), tc.Replicator, dependents.Target{Cluster: "east"})
		}
		all, err := measure() // sizes are known afterwards
		if len(all) != tc.objects || !errors.Is(err, tc.err) {
			t.Errorf("of references %s, there are %d objects, and the error is %.200v", name, len(all), err)
		}
		if bytes := made(func() { _, _ = measure() }); bytes > tc.most {
			t.Errorf("references %s make %d bytes, and a copy %d", name, bytes, copied)
		}
	}
}

// TestWhatIsReferredToIsNotChanged: it is in the cache, and read by others meanwhile.
func TestWhatIsReferredToIsNotChanged(t *testing.T) {
	t.Parallel()
	source := secretOf("a", 3)
	before := source.DeepCopy()
	c := controllerOf(t, source)
	for name, o := range map[string]v1alpha1.Override{
		"none":          {MergePatch: rawJSON(`{"type":"x"}`), Target: v1alpha1.Target{Name: "other"}},
		"a merge patch": {MergePatch: rawJSON(`{"metadata":{"labels":{"a":"c"}},"data":{"g000":"eA=="}}`)},
		"a wrong one":   {MergePatch: rawJSON(`{"type":"x"}`)},
	} {
		r := copiesOf("a", 2)
		r.Spec.Overrides = []v1alpha1.Override{o}
		all, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east"})
		if (err != nil) != (len(all) == 0) {
			t.Errorf("%s: there are %d objects, and the error is %v", name, len(all), err)
		}
		for _, obj := range all {
			u := obj.(*unstructured.Unstructured) //nolint:forcetypeassert // desired returns no others
			isClean := u.GetUID() == "" && len(u.GetAnnotations())+len(u.GetFinalizers()) == 0 && len(u.GetLabels()) == 1 && u.Object["status"] == nil
			if u.GetNamespace() != tenant || !isClean {
				t.Errorf("%s: it is %v", name, u.Object)
			}
			for _, within := range u.Object {
				if fields, is := within.(map[string]any); is {
					clear(fields) // as the library may
				}
			}
		}
		if !maps.EqualFunc(source.Object, before.Object, func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
			t.Fatalf("%s: the object in the cache was %v, and is %v", name, before.Object, source.Object)
		}
	}
}

// TestOverridesSeeAnObjectOfTheHubAsItIsBrought, without what kubectl has noted of it: all of a Secret, in the clear.
func TestOverridesSeeAnObjectOfTheHubAsItIsBrought(t *testing.T) {
	t.Parallel()
	r := copiesOf("a", 1)
	r.Spec.Overrides = []v1alpha1.Override{expressionsOf("/metadata/annotations/seen", "string(has(object.metadata.annotations) || has(object.metadata.uid) || has(object.status))")}
	all, err := controllerOf(t, secretOf("a", 1)).desired(t.Context(), r, dependents.Target{Cluster: "east"})
	must(t, err)
	if got := all[0].GetAnnotations()["seen"]; got != "false" {
		t.Errorf("overrides see annotations, a UID or a status: %s", got)
	}
}

func TestAReferenceThatGivesTheSameAsAnotherOneIsRefused(t *testing.T) {
	t.Parallel()
	r := replicator("r", nil)
	r.Spec.References = []v1alpha1.Reference{{Kind: "Secret", Name: "a"}, {Kind: "Secret", Name: "a", As: "b"}, {Kind: "Secret", Name: "c", As: "a"}, {Kind: "Secret", Name: "a"}}
	all, err := controllerOf(t, secretOf("a", 1), secretOf("c", 2)).desired(t.Context(), r, dependents.Target{Cluster: "east"})
	if len(all) != 2 || err == nil || strings.Count(err.Error(), "Secret a is desired twice: spec.references[0] gives it too") != 2 {
		t.Errorf("there are %d objects, and the error is %v", len(all), err)
	}
}

// TestSizesOfObjectsOfTheHubFollowThem, and are not remembered for ever.
func TestSizesOfObjectsOfTheHubFollowThem(t *testing.T) {
	t.Parallel()
	var s sizes
	source := secretOf("a", 1)
	size, err := s.of(source)
	must(t, err)
	source = secretOf("a", 2)
	if again, _ := s.of(source); again != size {
		t.Error("what is known is measured again")
	}
	source.SetResourceVersion("8")
	if again, _ := s.of(source); again <= size {
		t.Errorf("the size was %d, and is %d after there is more", size, again)
	}
	for i := range mostSizes {
		source.SetUID(types.UID(fmt.Sprint(i)))
		_, err := s.of(source)
		must(t, err)
	}
	if len(s.all) > mostSizes {
		t.Errorf("%d sizes are remembered", len(s.all))
	}
}

// TestSizesAreThoseOfTheJSON that is not made.
func TestSizesAreThoseOfTheJSON(t *testing.T) {
	t.Parallel()
	var deep any = map[string]any{}
	for range mostDepth {
		deep = []any{deep}
	}
	numbers := []any{
		int64(0), int64(-7), int64(math.MaxInt64), 0.0, 0.5, -0.25, 1e20, 1e21, 1e-7, 1.7976931348623157e308, 123456.789,
	}
	for name, object := range map[string]map[string]any{
		"a Secret":  secretOf("a", 1000).Object,
		"nothing":   {},
		"numbers":   {"a": numbers, "b": nil, "c": true, "d": map[string]any{}, "e": []any{}},
		"texts":     {"\n<a>&\"\\\u2028": "\x00\x07\b\t\v\f\r\x7fé€😀\u2029\xff\xc3"},
		"too deep":  {"a": deep},
		"too large": secretOf("a", keysTooLarge).Object,
	} {
		text, err := json.Marshal(object)
		must(t, err)
		want, wantErr := sizeOf(text)
		size, err := sizeOfValues(object)
		if !errors.Is(err, wantErr) || size < want || size > want+3 { // true, null and an exponent count one byte more
			t.Errorf("%s: the size is %d, %v, and that of the JSON %d, %v", name, size, err, want, wantErr)
		}
	}
	for c := range rune(0x2100) {
		text, err := json.Marshal(string(c))
		must(t, err)
		if length := lengthAsJSON(string(c)); length != len(text) {
			t.Errorf("%q has %d bytes as JSON, and is said to have %d", c, len(text), length)
		}
	}
}

// TestATenantIsServedBesideOneThatRefersToWhatHasNoRoom, in all that it may create.
func TestATenantIsServedBesideOneThatRefersToWhatHasNoRoom(t *testing.T) {
	t.Parallel()
	const hostile, replicators = "team-b", 20
	w := start(t, "", "east")
	large := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: hostile, Name: "many", Labels: map[string]string{v1alpha1.SourceLabel: "true"},
	}, Data: map[string][]byte{}}
	for key := range secretOf("many", keysTooMany).Object["data"].(map[string]any) { //nolint:forcetypeassert // secretOf has made it
		large.Data[key] = nil
	}
	create(t, w.Local, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hostile}}, large)
	for i := range replicators {
		r := copiesOf("many", 50)
		r.Namespace, r.Name, r.Spec.Clusters.Names = hostile, fmt.Sprintf("r-%d", i), []string{"east"}
		create(t, w.Local, r)
	}
	create(t, w.Local, replicator("honest", []string{"east"}, configMap("honest")))
	w.synced("honest")
	isThere(t, w.members["east"], configMap("honest"))
	stage.Eventually(t, "all of the others are told why", func() bool {
		list, told := &v1alpha1.ReplicatorList{}, 0
		must(t, w.Local.Client().List(t.Context(), list, client.InNamespace(hostile)))
		for _, r := range list.Items {
			if is := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSynced); is != nil && strings.Contains(is.Message, "more than 8 MiB of memory") {
				told++
			}
		}
		return told == replicators
	})
	w.change("honest", func(r *v1alpha1.Replicator) {
		r.Spec.Manifests = append(r.Spec.Manifests, manifest(configMap("later")))
	})
	isThere(t, w.members["east"], configMap("later"))
}
