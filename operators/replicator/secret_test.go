package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// held is what a Secret holds in these tests, and heldData the same as the API server shows it.
const held, heldData = "s3cr3t", "czNjcjN0"

func withSecret(overrides ...v1alpha1.Override) *v1alpha1.Replicator {
	r := replicator("r", nil, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "db"}, Data: map[string][]byte{"password": []byte(held)}, StringData: map[string]string{"password": held},
	})
	r.Spec.Overrides = overrides
	return r
}

func quotes(text string) bool {
	return strings.Contains(text, held) || strings.Contains(text, heldData)
}

// expressionsOf returns an override by pairs of paths and expressions.
func expressionsOf(pairs ...string) (o v1alpha1.Override) {
	for i := 0; i < len(pairs); i += 2 {
		o.CEL = append(o.CEL, v1alpha1.Expression{Path: pairs[i], Expression: pairs[i+1]})
	}
	return o
}

// TestNoOverrideReadsASecret: whatever it does, nothing of what a Secret holds gets into an error, or where an API server quotes it.
func TestNoOverrideReadsASecret(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	merge := func(text string) v1alpha1.Override { return v1alpha1.Override{MergePatch: rawJSON(text)} }
	jsonPatch := func(all ...v1alpha1.Operation) v1alpha1.Override { return v1alpha1.Override{JSONPatch: all} }
	for name, all := range map[string][]v1alpha1.Override{
		"a key that is a value":         {expressionsOf("/data/a", "{'a': 'b'}[object.stringData.password]")},
		"a label that is a value":       {expressionsOf("/data/a", "cluster.labels[object.data.password]")},
		"a number that is a value":      {expressionsOf("/data/a", "int(object.stringData.password)")},
		"all of it":                     {expressionsOf("/metadata/annotations/a", `string(object["data"]["password"])`)},
		"a name that is a value":        {expressionsOf("/metadata/name", "object.stringData.password")},
		"a kind that is a value":        {expressionsOf("/kind", "object.stringData.password")},
		"a version that is one":         {expressionsOf("/apiVersion", "object.stringData.password")},
		"an annotation":                 {expressionsOf("/metadata/annotations/fleet-runtime.dev~1change-policy", "object.data.password", "/data", "{}")},
		"a wave":                        {expressionsOf("/metadata/annotations/fleet-runtime.dev~1wave", "object.data.password", "/data", "{}")},
		"a label":                       {expressionsOf("/metadata/labels/x", `object.data.password + "="`, "/data", "{}")},
		"a finalizer":                   {expressionsOf("/metadata/finalizers", "[object.data.password]", "/data", "{}")},
		"another kind first":            {expressionsOf("/kind", `"ConfigMap"`, "/data/a", "{'a': 'b'}[object.data.password]")},
		"another version first":         {expressionsOf("/apiVersion", `"v2"`, "/data/a", "{'a': 'b'}[object.data.password]")},
		"another kind by a patch":       {merge(`{"kind":"ConfigMap"}`), expressionsOf("/data/a", "{'a': 'b'}[object.stringData.password]")},
		"a kind and what it is made of": {merge(`{"kind":"Secret team-a/db","metadata":{"namespace":"","name":""}}`), expressionsOf("/data/a", "{'a': 'b'}[object.data.password]")},
		"no object":                     {merge(`{"kind":null}`)},
		"no object with a value":        {merge(`{"metadata":1}`)},
		"what follows a patch":          {jsonPatch(v1alpha1.Operation{Op: "copy", From: "/data", Path: "/x"}), expressionsOf("/y", "object.x.password")},
		"a patch that fails":            {jsonPatch(v1alpha1.Operation{Op: "replace", Path: "/data/password/x", Value: rawJSON("1")})},
	} {
		objs, err := desired(withSecret(all...), nil)
		mustTellNothing(t, name, objs, err)
	}
}

// mustTellNothing checks what became of a Secret, but for the fields in which it holds what it does.
func mustTellNothing(t *testing.T, name string, objs []*unstructured.Unstructured, err error) {
	t.Helper()
	for _, obj := range objs {
		for _, field := range heldIn() {
			delete(obj.Object, field)
		}
		if text := fmt.Sprint(obj.Object); quotes(text) {
			t.Errorf("%s: it is %s", name, text)
		}
	}
	if err != nil && quotes(err.Error()) {
		t.Errorf("%s: the error is %v", name, err)
	}
}

// TestJSONPatchesReadNothingOfASecret, by whatever path, not even whether it is some text, which a test tells.
func TestJSONPatchesReadNothingOfASecret(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	for _, read := range []string{
		"", "/", "//", "/data", "/data/", "//data", "/data/password", "//data/password", "///data/password", "/stringData", "/stringData/password", "//stringData/password",
		"/data/password/", "x/data/password", "data/password", "/data/pass~0word", "/metadata/../data",
	} {
		for _, op := range []string{"copy", "move"} {
			for _, to := range []string{"/x", "/metadata/annotations", "/metadata/annotations/x", "/metadata/labels/x", "/metadata/finalizers/0"} {
				objs, err := desired(withSecret(
					v1alpha1.Override{JSONPatch: []v1alpha1.Operation{{Op: op, From: read, Path: to}}}, expressionsOf("/y", "{'a': 'b'}[object.x]"),
				), nil)
				mustTellNothing(t, op+" "+read+" to "+to, objs, err)
			}
		}
		results := map[string]bool{}
		for _, text := range []string{held, heldData, "another"} {
			_, err := desired(withSecret(v1alpha1.Override{JSONPatch: []v1alpha1.Operation{{Op: "test", Path: read, Value: rawJSON(`"` + text + `"`)}}}), nil)
			results[fmt.Sprint(err == nil)] = true
		}
		if len(results) != 1 {
			t.Errorf("a test of %q tells what it is", read)
		}
	}
}

// TestWhatASecretHoldsMovesWithinItsField, whole, and is not multiplied without bounds.
func TestWhatASecretHoldsMovesWithinItsField(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	jsonPatch := func(all ...v1alpha1.Operation) v1alpha1.Override { return v1alpha1.Override{JSONPatch: all} }
	move := v1alpha1.Operation{Op: "move", From: "/data/password", Path: "/data/key"}
	objs, err := desired(withSecret(jsonPatch(move, v1alpha1.Operation{Op: "copy", From: "/data/key", Path: "/data/other"})), nil)
	must(t, err)
	if data := fmt.Sprint(objs[0].Object["data"], objs[0].Object["stringData"]); data != "map[key:"+heldData+" other:"+heldData+"] map[password:"+held+"]" {
		t.Errorf("it has %s", data)
	}
	for name, o := range map[string]v1alpha1.Override{
		"another field":   jsonPatch(v1alpha1.Operation{Op: "copy", From: "/data/password", Path: "/stringData/key"}),
		"a longer text":   expressionsOf("/stringData/url", `"postgres://" + object.stringData.password`),
		"an annotation":   expressionsOf("/metadata/annotations/all", "string(object.data.password)"),
		"a key":           expressionsOf("/x", "{object.data.password: 1}"),
		"a list":          expressionsOf("/x", "[[object.data.password]]"),
		"all in one text": expressionsOf("/data/all", "object.data.password + object.data.password"),
	} {
		if _, err := desired(withSecret(o), nil); !errors.Is(err, errElsewhere) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := desired(withSecret(expressionsOf("/type", "'kubernetes.io/dockerconfigjson'")), nil); !errors.Is(err, errType) {
		t.Errorf("another type: %v", err)
	}
}

// TestASecretWhoseTypeIsNoTextIsRefused, also where an override makes it so. Maps and lists cannot be compared: the replicator panicked.
func TestASecretWhoseTypeIsNoTextIsRefused(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	for kind, want := range map[string]error{
		`{"a":"b"}`: errNoTexts, `["a"]`: errNoTexts, "1": errNoTexts, "null": nil, `"Opaque"`: nil,
	} {
		r := withSecret(v1alpha1.Override{MergePatch: rawJSON(`{"metadata":{"labels":{"a":"b"}}}`)})
		r.Spec.Manifests = []v1alpha1.Manifest{raw(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"type":%s}`, kind)}
		if all, err := desired(r, nil); !errors.Is(err, want) || (err == nil) != (len(all) == 1) {
			t.Errorf("of the type %s: there are %d objects, and the error is %v", kind, len(all), err)
		}
	}
	for _, kind := range []string{"{'a': 'b'}", "['a']", "1"} {
		if _, err := desired(withSecret(expressionsOf("/type", kind)), nil); !errors.Is(err, errType) {
			t.Errorf("made to %s: %v", kind, err)
		}
	}
}

// TestWhatOverridesDoNotSeeTakesRoom for each place in which it is.
func TestWhatOverridesDoNotSeeTakesRoom(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	of := func(data string, keys int, manifests int) *v1alpha1.Replicator {
		copies := make([]string, keys)
		for i := range copies {
			copies[i] = fmt.Sprintf(`"%d":"(hidden: data.a)"`, i)
		}
		r := withSecret(v1alpha1.Override{MergePatch: rawJSON(`{"data":{` + strings.Join(copies, ",") + `}}`)})
		r.Spec.Manifests = nil
		for i := range manifests {
			r.Spec.Manifests = append(r.Spec.Manifests, raw(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db-%d"},"data":%s}`, i, data))
		}
		return r
	}
	large := `{"a":"` + strings.Repeat("AAAA", 75_000) + `"}`
	for name, tc := range map[string]struct {
		of   *v1alpha1.Replicator
		want error
	}{
		"as it is":                  {of(large, 0, 8), nil},
		"twice":                     {of(large, 1, 8), nil},
		"in an object too often":    {of(large, 4, 1), errTooMuch},
		"in all together too often": {of(large, 2, 12), errTooMuchOfAll},
		"maps":                      {of(`{"a":[`+strings.Repeat("{},", 1000)+`{}]}`, 70, 1), errNoTexts},
		"no map":                    {of(`["a"]`, 1, 1), errNoTexts},
		"nothing":                   {of(`null`, 0, 1), nil},
	} {
		if _, err := desired(tc.of, nil); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// TestOverridesWriteSecrets that they do not read, and what is no Secret is read.
func TestOverridesWriteSecrets(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	objs, err := desired(withSecret(
		expressionsOf("/stringData/cluster", "cluster.name", "/metadata/annotations/of", "object.metadata.name"),
		v1alpha1.Override{JSONPatch: []v1alpha1.Operation{{Op: "remove", Path: "/data/password"}, {Op: "add", Path: "/data/a", Value: rawJSON(`"Yg=="`)}}},
		v1alpha1.Override{MergePatch: rawJSON(`{"data":{"c":"ZA=="}}`)},
	), nil)
	must(t, err)
	want := "map[a:Yg== c:ZA==] map[cluster:east password:" + held + "] map[of:db]"
	if got := fmt.Sprint(objs[0].Object["data"], objs[0].Object["stringData"], objs[0].GetAnnotations()); got != want {
		t.Errorf("the Secret has %s, want %s", got, want)
	}
	plain := withOverride(expressionsOf("/metadata/annotations/a", "object.data.a"))
	plain.Spec.Manifests = []v1alpha1.Manifest{manifest(configMap("plain", "a", "b"))}
	if objs, err = desired(plain, nil); err != nil || objs[0].GetAnnotations()["a"] != "b" {
		t.Errorf("a ConfigMap is %v, %v", objs, err)
	}
}

// TestIdentitiesAreComparedFieldByField, and to their ends.
func TestIdentitiesAreComparedFieldByField(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	long := strings.Repeat("n", 253)
	of := func(kind, namespace, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"namespace": namespace, "name": name}}}
	}
	if identityOf(of("A", "b/c", "d")) == identityOf(of("A", "b", "c/d")) || identityOf(of("A b/c", "d", "e")) == identityOf(of("A", "b/c d", "e")) {
		t.Error("two objects are taken for one")
	}
	r := replicator("r", nil, configMap(long))
	r.Spec.Overrides = []v1alpha1.Override{{MergePatch: rawJSON(`{"metadata":{"name":"` + long + `x"}}`)}}
	if _, err := desired(r, nil); err == nil || !strings.Contains(err.Error(), "must not change") {
		t.Errorf("another name is told as %v", err)
	}
}
