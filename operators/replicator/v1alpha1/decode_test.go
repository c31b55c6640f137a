package v1alpha1_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// everything has all fields of a Replicator, once.
const everything = `
spec:
  manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]
  references: [{group: apps, kind: Deployment, name: a, as: b}]
  namespace: a
  createNamespace: true
  clusters: {names: [a], decisionKey: a, selector: &selector {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}}
  overrides:
  - {selector: *selector, target: {kind: ConfigMap, name: a}, mergePatch: {a: b}}
  - {jsonPatch: [{op: add, path: /a, from: /b, value: 1}]}
  - {cel: [{path: /a, expression: "1"}]}
  conflicts: Fail
  deletionPolicy: Delete
  change: Apply
  suspend: true
  rollout: {maxParallel: 1, haltAfter: 1, progressDeadlineSeconds: 1}
status:
  {observedGeneration: 1, targets: 1, synced: 1, pending: 1, failed: 1, unreachable: 1, notReady: 1, leaving: 1, notSyncedIn: a,
  conditions: [{type: A, status: "True", reason: A, message: a, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}]}
`

// crooked are values that some decoder takes, or does not, for numbers, times, texts, maps or lists.
const crooked = `[null, true, "", "a", "1", "100%", "5.", "1e3", "2026-01-01t00:00:00z", "2026-01-01T00:00:00x1Z", "2026-01-01T00:00:00+99:99", "2026-01-01", "1h",
  "\u0000\ud800", 0, -0.0, 1.0, 1.5, 1.5e3, -1, 1.0000000001, 600.0000001, 2147483648, 3000000000, -3000000000, 1e15, 9007199254740993.0, 9223372036854775807, -9223372036854775808,
  9223372036854775808, 1e19, 1e300, [], [null], [1], [{}], [[]], {}, {"a":null}, {"a":1}, {"a":{}}, {"a":[]}]`

// TestWhateverIsStoredIsDecoded, in any field: API servers differ in what they take for an integer, and older CRDs have taken more.
func TestWhateverIsStoredIsDecoded(t *testing.T) {
	t.Parallel()
	var values []any
	must(t, json.Unmarshal([]byte(crooked), &values))
	whole := map[string]any{}
	must(t, yaml.Unmarshal([]byte(everything), &whole))
	seen := map[string]bool{}
	var walk func(at string, value any, set func(any))
	walk = func(at string, value any, set func(any)) {
		seen[at] = true
		for _, other := range values {
			set(other)
			checkDecodes(t, fmt.Sprintf("%s: %v", at, other), whole)
		}
		set(value)
		switch value := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				walk(at+"."+key, value[key], func(other any) { value[key] = other })
			}
		case []any:
			for i := range value {
				walk(at+"[]", value[i], func(other any) { value[i] = other })
			}
		}
	}
	for part := range whole {
		walk(part, whole[part], func(other any) { whole[part] = other })
	}
	for part, of := range schemaOf(t).Properties {
		if part == "spec" || part == "status" {
			checkSeen(t, part, of, seen)
		}
	}
}

func checkDecodes(t *testing.T, what string, replicator map[string]any) {
	t.Helper()
	stored, err := json.Marshal(map[string]any{"items": []any{replicator}})
	must(t, err)
	list := &v1alpha1.ReplicatorList{}
	if err := json.Unmarshal(stored, list); err != nil || len(list.Items) != 1 {
		t.Errorf("%s: the list has %d items: %v", what, len(list.Items), err)
	}
}

// checkSeen fails for a field of the schema that was not tried.
func checkSeen(t *testing.T, at string, of apiextensionsv1.JSONSchemaProps, seen map[string]bool) {
	t.Helper()
	if !seen[at] {
		t.Errorf("%s was not tried", at)
	}
	if of.Items != nil {
		checkSeen(t, at+"[]", *of.Items.Schema, seen)
	}
	for name, field := range of.Properties {
		checkSeen(t, at+"."+name, field, seen)
	}
}

func schemaOf(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, yaml.UnmarshalStrict([]byte(v1alpha1.CRD()), crd))
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// TestASpecThatCannotBeDecoded says so, and keeps its deletion policy alone.
func TestASpecThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]v1alpha1.Spec{
		`{"rollout":{"haltAfter":2},"suspend":true}`:                            {Rollout: v1alpha1.Rollout{HaltAfter: 2}, Suspend: true},
		`{"rollout":{"haltAfter":2,"HaltAfter":3},"Suspend":true}`:              {Rollout: v1alpha1.Rollout{HaltAfter: 2}},
		`{"rollout":{"haltAfter":1.0000000001},"suspend":true}`:                 {DecodeError: "rollout.haltAfter"},
		`{"rollout":{"maxParallel":3000000000},"deletionPolicy":"Delete"}`:      {DecodeError: "3000000000", DeletionPolicy: v1alpha1.DeletionDelete},
		`{"rollout":{"progressDeadlineSeconds":0.1},"deletionPolicy":"Orphan"}`: {DecodeError: "0.1", DeletionPolicy: v1alpha1.DeletionOrphan},
		`{"rollout":{"haltAfter":1` + strings.Repeat("0", 1000) + `.5}}`:        {DecodeError: "10000"},
		`{"deletionPolicy":1}`: {DecodeError: "number", DeletionPolicy: v1alpha1.DeletionOrphan},
		`[]`:                   {DecodeError: "array", DeletionPolicy: v1alpha1.DeletionOrphan},
	} {
		got := v1alpha1.Spec{Namespace: "before"}
		must(t, json.Unmarshal([]byte(text), &got))
		if !strings.Contains(got.DecodeError, want.DecodeError) || len(got.DecodeError) > 256 {
			t.Errorf("%.100s: the error is %s", text, got.DecodeError)
		}
		if (want.DecodeError == "") == (got.DecodeError == "") {
			want.DecodeError = got.DecodeError
		}
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%.100s is decoded as %+v", text, got)
		}
	}
}

// TestAStatusThatCannotBeDecodedIsWrittenWhole: a patch to any right one has all fields.
func TestAStatusThatCannotBeDecodedIsWrittenWhole(t *testing.T) {
	t.Parallel()
	fields := schemaOf(t).Properties["status"].Properties
	for crooked := range fields {
		was := &v1alpha1.Replicator{}
		must(t, json.Unmarshal([]byte(`{"status":{"`+crooked+`":1.0000000001}}`), was))
		is := was.DeepCopy()
		is.Status = v1alpha1.Status{ObservedGeneration: 1, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSynced}}}
		text, err := client.MergeFrom(was).Data(is)
		must(t, err)
		patch := struct {
			Status map[string]any `json:"status"`
		}{}
		must(t, json.Unmarshal(text, &patch))
		for field := range fields {
			if _, has := patch.Status[field]; !has {
				t.Errorf("with a crooked %s, the patch lacks %s: %s", crooked, field, text)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
