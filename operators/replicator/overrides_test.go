package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// desiredOf returns what a Replicator has for a target with these labels.
func desiredOf(t *testing.T, r *v1alpha1.Replicator, labels map[string]string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	expressions, err := newExpressions()
	must(t, err)
	c := &controller{kinds: parseKinds(defaultKinds), expressions: expressions}
	objs, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east", Labels: labels})
	all := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		all[i] = obj.(*unstructured.Unstructured) //nolint:forcetypeassert // desired returns no others
	}
	return all, err
}

func withOverride(o v1alpha1.Override) *v1alpha1.Replicator {
	r := replicator("r", nil, deployment("nginx", 1), configMap("plain"))
	r.Spec.Overrides = []v1alpha1.Override{o}
	return r
}

func sized(size string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}}
}

func TestOverridesChangeWhatTheySelectAndNothingElse(t *testing.T) {
	t.Parallel()
	deployments := v1alpha1.Target{Kind: "Deployment"}
	for name, o := range map[string]v1alpha1.Override{
		"a merge patch": {Selector: sized("7"), Target: deployments, MergePatch: rawJSON(`{"spec":{"replicas":7}}`)},
		"a JSON patch":  {Selector: sized("7"), Target: deployments, JSONPatch: []v1alpha1.Operation{{Op: "replace", Path: "/spec/replicas", Value: rawJSON("7")}}},
		"CEL":           {Selector: sized("7"), Target: deployments, CEL: []v1alpha1.Expression{{Path: "/spec/replicas", Expression: `int(cluster.labels["size"])`}}},
	} {
		for size, want := range map[string]int64{"7": 7, "2": 1} {
			all, err := desiredOf(t, withOverride(o), map[string]string{"size": size})
			must(t, err)
			if got, _, err := unstructured.NestedInt64(all[0].Object, "spec", "replicas"); got != want || err != nil {
				t.Errorf("%s: in a cluster of the size %s there are %d replicas, %v", name, size, got, err)
			}
			if _, changed := all[1].Object["spec"]; changed {
				t.Errorf("%s: another object was changed", name)
			}
		}
	}
}

func TestExpressionsMakeMapsOnTheWayAndReachIntoLists(t *testing.T) {
	t.Parallel()
	r := withOverride(v1alpha1.Override{Target: v1alpha1.Target{Name: "nginx"}, CEL: []v1alpha1.Expression{
		{Path: "/metadata/annotations/example.com~1in", Expression: `cluster.name + "-" + object.metadata.name`},
		{Path: "/spec/template/spec/containers/0/image", Expression: `object.spec.template.spec.containers[0].name + ":1.30"`},
	}})
	all, err := desiredOf(t, r, nil)
	must(t, err)
	containers, _, _ := unstructured.NestedSlice(all[0].Object, "spec", "template", "spec", "containers")
	if image := containers[0].(map[string]any)["image"]; all[0].GetAnnotations()["example.com/in"] != "east-nginx" || image != "nginx:1.30" { //nolint:forcetypeassert // a container is a map
		t.Errorf("it is %v", all[0].Object)
	}
}

func TestAnEmptySelectorSelectsNothing(t *testing.T) {
	t.Parallel()
	for _, selector := range []*metav1.LabelSelector{nil, {}} {
		if is, err := selects(selector, map[string]string{"a": "b"}); is || err != nil {
			t.Errorf("%v selects: %v, %v", selector, is, err)
		}
	}
}

// TestWhatIsWrongWithAnObjectIsToldAndOthersProceed also shows that nobody makes the operator loop, or swell.
func TestWhatIsWrongWithAnObjectIsToldAndOthersProceed(t *testing.T) {
	t.Parallel()
	on := v1alpha1.Target{Name: "nginx"}
	cel := func(expression string) v1alpha1.Override {
		return v1alpha1.Override{Target: on, CEL: []v1alpha1.Expression{{Path: "/spec/replicas", Expression: expression}}}
	}
	ten := `["a","b","c","d","e","f","g","h","i","j"]`
	doubling := make([]v1alpha1.Operation, 0, 50)
	for i := range 50 { // each copies all that there is
		doubling = append(doubling, v1alpha1.Operation{Op: "copy", From: "/metadata", Path: fmt.Sprintf("/metadata/x%d", i)})
	}
	again := make([]v1alpha1.Expression, 0, 25)
	for i := range 25 { // each puts all that there is into it once more
		again = append(again, v1alpha1.Expression{Path: fmt.Sprintf("/x%d", i), Expression: "object"})
	}
	for name, c := range map[string]struct {
		v1alpha1.Override

		says string
	}{
		"expressions that double it": {v1alpha1.Override{Target: on, CEL: again}, "more than"},
		"messages":                   {cel("[{'x':1}]" + strings.Repeat(".map(a,{'x':a,'y':a})", 30) + ".map(a,google.protobuf.Struct{fields:a}).size()"), "there are no messages"},
		"a label that is a number":   {cel(`cluster.labels["tier"] == 3 ? 1 : 2`), "are text, which is never equal to a number"},
		"a number that is text":      {cel(`3 != cluster.name ? 1 : 2`), "are text, which is never equal to a number"},
		"has of labels":              {cel(`has(cluster.labels) ? 1 : 2`), "has() tells of a label"},
		"has of the name":            {cel(`has(cluster.name) ? 1 : 2`), "has() tells of a label"},
		"functions of strings":       {cel(`"a".replace("a", "b")`), "no function replace"},
		"no such label":              {cel(`int(cluster.labels["size"])`), "no such key: size"},
		"no CEL":                     {cel(`1 +`), "Syntax error"},
		"another variable":           {cel(`secrets`), "no such attribute(s): secrets"},
		"no value":                   {cel(`1 / 0`), "division by zero"},
		"loops in loops":             {cel("[[" + strings.Repeat("1,", 99) + "1]].map(h, h.map(x, h.map(y, h.map(z, x))))"), "cost limit"},
		"deeper loops in loops":      {cel(strings.Repeat("[1].map(a,", 200) + "object.n" + strings.Repeat(")", 200)), "more than 4 deep"},
		"long lists in loops":        {cel(ten + ".map(a,[" + strings.Repeat("1,", 1900) + "1]).size()"), "more than 128 elements"},
		"a long path":                {cel("true ? 1 : object" + strings.Repeat(".a", 200)), "more than 16 steps"},
		"a long path of elements":    {cel("true ? 1 : object" + strings.Repeat(`["a"]`, 100)), "more than 16 steps"},
		"a long path of choices":     {cel("true ? 1 : " + strings.Repeat("(1?", 6) + "object" + strings.Repeat(strings.Repeat(".a", 8)+":1)", 6)), "more than 16 steps"},
		"an old name of in":          {cel(doubled("[a,a]", 30) + ".map(a, _in_(a,[a]))"), "no function _in_"},
		"lists that double":          {cel(doubled("a+a", 30) + ".map(a, 2 in a)[0] ? 1 : 2"), "more than 10000 values"},
		"lists of lists":             {cel(doubled("[a,a]", 30) + ".map(a, a == a)[0] ? 1 : 2"), "more than 10000 values"},
		"maps of maps":               {cel(doubled(`{"x":a,"y":a}`, 30) + ".map(a, a != a)[0] ? 1 : 2"), "more than 10000 values"},
		"keys that are maps":         {cel(doubled("{a:a}", 40) + ".map(a, a == a)[0] ? 1 : 2"), "more than 10000 values"},
		"deeper than any":            {cel(doubled("[a]", 300) + ".size()"), "recursion depth"},
		"texts that double":          {cel("[object.metadata.name]" + strings.Repeat(".map(a,a+a)", 40) + ".size()"), "cost limit"},
		"texts in loops":             {cel(doubled("a+a", 12) + `.map(a, a.map(b, "` + strings.Repeat("x", 3000) + `" + string(b)))[0].size()`), "cost limit"},
		"texts in lists":             {cel(`["` + strings.Repeat("x", 3000) + `"]` + strings.Repeat(".map(a,a+a)", 5) + ".map(a, [a,a])" + strings.Repeat(".map(a,a+a)", 3) + ".map(a, a == a)[0] ? 1 : 2"), "more than 10000 values"},
		"expressions of text":        {cel(`cluster.name.matches("^(a?){1000}$") ? 1 : 2`), "no function matches"},
		"a path into a number":       {v1alpha1.Override{Target: on, CEL: []v1alpha1.Expression{{Path: "/spec/replicas/x", Expression: "1"}}}, "neither a map nor a list"},
		"a path beyond a list":       {v1alpha1.Override{Target: on, CEL: []v1alpha1.Expression{{Path: "/spec/template/spec/containers/9", Expression: "1"}}}, "the list is shorter"},
		"another name":               {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"metadata":{"name":"x"}}`)}, "must not change"},
		"another namespace":          {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"metadata":{"namespace":"kube-system"}}`)}, "must not change"},
		"another kind":               {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"kind":"Secret","apiVersion":"v1"}`)}, "must not change"},
		"no object":                  {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"kind":null}`)}, "is no object"},
		"a selector of nothing":      {v1alpha1.Override{Target: on, Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}, MergePatch: rawJSON(`{}`)}, "not a valid label selector operator"},
		"a patch that fails":         {v1alpha1.Override{Target: on, JSONPatch: []v1alpha1.Operation{{Op: "test", Path: "/kind", Value: rawJSON(`"Secret"`)}}}, "jsonPatch"},
		"copies of copies":           {v1alpha1.Override{Target: on, JSONPatch: doubling}, "copy"},
		"more than a megabyte":       {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"spec":{"x":"` + strings.Repeat("x", mostBytes) + `"}}`)}, "more than"},
	} {
		all, err := desiredOf(t, withOverride(c.Override), map[string]string{"tier": "3"})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "spec.") {
			t.Errorf("%s: the error is %.300v", name, err)
		}
		if len(all) != 1 || all[0].GetName() != "plain" {
			t.Errorf("%s: %d others proceed", name, len(all))
		}
	}
}

// doubled returns an expression whose value has the one before twice, so many times.
func doubled(twice string, times int) string {
	return "[[1]]" + strings.Repeat(".map(a,"+twice+")", times)
}

// TestWhatExpressionsDoWithTextIsBounded: an object may have a megabyte, and an expression go through it, or put it together, again and again.
func TestWhatExpressionsDoWithTextIsBounded(t *testing.T) {
	t.Parallel()
	large := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Large", "metadata": map[string]any{"name": "large"},
		"text": strings.Repeat("x", mostBytes*3/4), "many": slices.Repeat([]any{true}, mostValues-1),
	}}
	two := "[[[object.text+object.text],[object.text+object.text]]]" + strings.Repeat(".map(p,[p[0]+p[0],p[1]+p[1]])", 13)
	for expression, says := range map[string]string{
		"object.many.map(x, object.text + object.text).size()": "cost limit",
		"object.many.map(x, bytes(object.text)).size()":        "cost limit",
		`object.many.map(x, object.text.contains("y")).size()`: "cost limit",
		"[[1]]" + strings.Repeat(".map(a,a+a)", 13) + ".map(a," + strings.Repeat("[1]+(", 100) + "a" + strings.Repeat(")", 100) + ").map(a,a!=a" + strings.Repeat("||a!=a", 500) + ")": "cost limit",
		two + ".map(p, p[0] == p[1])": "more than",
		"{}[object.text]":             "no such key",
		`!has(cluster.labels.tier) && 1 == 1.0 && object.many[0] != 80 && object.text != 80 && cluster.name == "east" && ["a"].map(x, [1].map(y, x))[0][0] == "a"`: "",
		`(object.text + "y").endsWith("y") && "y" in [object.text, "y"]`:                                                                                           "",
	} {
		r := replicator("r", nil, large)
		r.Spec.Overrides = []v1alpha1.Override{{CEL: []v1alpha1.Expression{{Path: "/is", Expression: expression}}}}
		all, err := desiredOf(t, r, nil)
		if says == "" && (err != nil || all[0].Object["is"] != true) || says != "" && (err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 2*mostSaid) {
			t.Errorf("%.100s: the error is %.3000v", expression, err)
		}
	}
}

// TestObjectsForATargetAreBoundedTogether: each of a hundred may have a megabyte, and sixteen workers hold them while they write. Those that
// have room are returned.
func TestObjectsForATargetAreBoundedTogether(t *testing.T) {
	t.Parallel()
	const each = mostBytes / 2
	objs := make([]client.Object, mostBytesOfAll/each+2)
	for i := range objs {
		objs[i] = configMap(fmt.Sprintf("large-%d", i), "a", strings.Repeat("a", each))
	}
	all, err := desiredOf(t, replicator("r", nil, objs...), nil)
	if err == nil || !strings.Contains(err.Error(), "together") || strings.Count(err.Error(), "together") > 1 || len(all) != mostBytesOfAll/each-1 {
		t.Errorf("there are %d of %d objects, and the error is %.300v", len(all), len(objs), err)
	}
}

// TestExpressionsCompareWhatIsNotTooLarge: an object may have a hundred thousand values, and an expression compare it hundreds of times.
func TestExpressionsCompareWhatIsNotTooLarge(t *testing.T) {
	t.Parallel()
	large := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Large", "metadata": map[string]any{"name": "large"},
		"few": []any{int64(1), int64(2)}, "many": slices.Repeat([]any{[]any{}}, mostValues+1),
	}}
	for expression, says := range map[string]string{
		"object.few == [1, 2]": "", "object.few != [1]": "", "2 in object.few": "", "size(object.many) > 2": "", `"few" in {"few": object.few}`: "",
		"object.many == object.many": "more than", "object.many != []": "more than", "1 in object.many": "more than", "[object.many] == []": "more than",
		"object == object": "more than", "[] + object.many == []": "more than",
	} {
		r := replicator("r", nil, large)
		r.Spec.Overrides = []v1alpha1.Override{{CEL: []v1alpha1.Expression{{Path: "/is", Expression: expression}}}}
		all, err := desiredOf(t, r, nil)
		if says == "" && (err != nil || all[0].Object["is"] != true) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: the error is %v", expression, err)
		}
	}
}

// TestAnObjectIsBoundedAfterEachOverride, and not after the last alone: each of fifty could add a megabyte, which all that follow read.
func TestAnObjectIsBoundedAfterEachOverride(t *testing.T) {
	t.Parallel()
	grow := v1alpha1.Override{JSONPatch: []v1alpha1.Operation{{Op: "copy", From: "/data", Path: "/more"}}}
	shrink := v1alpha1.Override{MergePatch: rawJSON(`{"more":null}`)}
	r := replicator("r", nil, configMap("large", "a", strings.Repeat("a", mostBytes*3/4)))
	r.Spec.Overrides = []v1alpha1.Override{grow, shrink}
	if all, err := desiredOf(t, r, nil); err == nil || !strings.Contains(err.Error(), "spec.overrides[0]") || !strings.Contains(err.Error(), "more than") {
		t.Errorf("there are %d objects, and the error is %.300v", len(all), err)
	}
}

// TestOverridesEndWithTheirTime: an object has 50 overrides with 50 expressions each, of which each may take a second.
func TestOverridesEndWithTheirTime(t *testing.T) {
	t.Parallel()
	expressions, err := newExpressions()
	must(t, err)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errTooLong)
	for name, o := range map[string]v1alpha1.Override{
		"a patch": {MergePatch: rawJSON(`{}`)},
		"CEL":     {CEL: []v1alpha1.Expression{{Path: "/data/a", Expression: `"b"`}}},
	} {
		r := replicator("r", nil, configMap("plain"))
		r.Spec.Overrides = []v1alpha1.Override{o}
		c := &controller{expressions: expressions}
		if all, err := c.desired(over, r, dependents.Target{Cluster: "east"}); !errors.Is(err, errTooLong) || len(all) > 0 {
			t.Errorf("%s: there are %d objects, and the error is %v", name, len(all), err)
		}
		_, err := c.override(over, o, &unstructured.Unstructured{Object: map[string]any{}}, false, dependents.Target{})
		if name == "CEL" && !errors.Is(err, errTooLong) {
			t.Errorf("%s goes on: %v", name, err)
		}
	}
}

func TestObjectsSayNothingAboutWhoseTheyAre(t *testing.T) {
	t.Parallel()
	cm := configMap("claims")
	cm.Annotations = map[string]string{
		"owner.fleet-runtime.dev/abc": "{}", "fleet-runtime.dev/created-by": "x", "fleet-runtime.dev/wave": "1",
		"kubectl.kubernetes.io/last-applied-configuration": "secret", "example.com/a": "b",
	}
	cm.Labels = map[string]string{"fleet-runtime.dev/fleet": "other", v1alpha1.SourceLabel: "true"}
	cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}}
	all, err := desiredOf(t, replicator("r", nil, cm), nil)
	must(t, err)
	if a := all[0].GetAnnotations(); len(a) != 2 || a["fleet-runtime.dev/wave"] != "1" || a["example.com/a"] != "b" ||
		len(all[0].GetLabels())+len(all[0].GetOwnerReferences()) > 0 {
		t.Errorf("it is %v", all[0].Object)
	}
}

func rawJSON(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
