package v1alpha1_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
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
  "\u0000\ud800", 0, -0.0, 1.0, 1.5, 1.5e3, -1, 2147483648, 3000000000, -3000000000, 1e15, 9007199254740993.0, 9223372036854775807, -9223372036854775808,
  9223372036854775808, 1e19, 1e300, [], [null], [1], [{}], [[]], {}, {"a":null}, {"a":1}, {"a":{}}, {"a":[]}]`

// TestWhatTheSchemaTakesIsDecoded, in any field, as it may be stored: without the rules in CEL, which older CRDs may not have had.
func TestWhatTheSchemaTakesIsDecoded(t *testing.T) {
	t.Parallel()
	schema := schemaOf(t)
	validator, _, err := validation.NewSchemaValidator(schema)
	must(t, err)
	var values []any
	must(t, json.Unmarshal([]byte(crooked), &values))
	whole := map[string]any{}
	must(t, yaml.Unmarshal([]byte(everything), &whole))
	seen, taken := map[string]bool{}, 0
	var walk func(at string, value any, set func(any))
	walk = func(at string, value any, set func(any)) {
		seen[at] = true
		for _, other := range values {
			set(other)
			if len(validation.ValidateCustomResource(nil, whole, validator)) == 0 {
				taken++
				checkDecodes(t, fmt.Sprintf("%s: %v", at, other), whole)
			}
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
	if taken < 100 {
		t.Errorf("the schema has taken %d values", taken)
	}
	for part, of := range schema.Properties {
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
func checkSeen(t *testing.T, at string, of apiextensions.JSONSchemaProps, seen map[string]bool) {
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

func schemaOf(t *testing.T) *apiextensions.JSONSchemaProps {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(t, yaml.UnmarshalStrict([]byte(v1alpha1.CRD()), crd))
	schema := &apiextensions.JSONSchemaProps{}
	must(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, schema, nil))
	return schema
}

// TestARolloutIsDecodedAsItIs, unless its maxParallel is none.
func TestARolloutIsDecodedAsItIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"maxParallel":5,"haltAfter":2,"progressDeadlineSeconds":9}`: `{"maxParallel":5,"haltAfter":2,"progressDeadlineSeconds":9}`,
		`{"maxParallel":"50%"}`:                                 `{"maxParallel":"50%"}`,
		`{"haltAfter":2}`:                                       `{"haltAfter":2}`,
		`{"maxParallel":null}`:                                  `{}`,
		`{"MaxParallel":3}`:                                     `{}`,
		`{"maxParallel":3000000000,"haltAfter":2}`:              `{"maxParallel":"3000000000","haltAfter":2}`,
		`{"maxParallel":[` + strings.Repeat("1,", 1000) + `1]}`: `{"maxParallel":"[` + strings.Repeat("1,", 31) + `1"}`,
	} {
		r := &v1alpha1.Rollout{}
		must(t, json.Unmarshal([]byte(text), r))
		if got, err := json.Marshal(r); string(got) != want || err != nil {
			t.Errorf("%.100s is decoded as %s, %v", text, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"haltAfter":"2"}`), &v1alpha1.Rollout{}); err == nil {
		t.Error("a field that no schema takes is decoded")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
