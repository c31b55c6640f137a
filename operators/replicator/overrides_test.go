package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// desiredBy returns what returns what a Replicator has for a target with these labels.
func desiredBy(t *testing.T) func(r *v1alpha1.Replicator, labels map[string]string) ([]*unstructured.Unstructured, error) {
	t.Helper()
	c := &controller{kinds: parseKinds(defaultKinds)}
	t.Cleanup(c.children.end)
	return func(r *v1alpha1.Replicator, labels map[string]string) ([]*unstructured.Unstructured, error) {
		objs, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east", Labels: labels})
		all := make([]*unstructured.Unstructured, len(objs))
		for i, obj := range objs {
			all[i] = obj.(*unstructured.Unstructured) //nolint:forcetypeassert // desired returns no others
		}
		return all, err
	}
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
	desired := desiredBy(t)
	deployments := v1alpha1.Target{Kind: "Deployment"}
	for name, o := range map[string]v1alpha1.Override{
		"a merge patch": {Selector: sized("7"), Target: deployments, MergePatch: rawJSON(`{"spec":{"replicas":7}}`)},
		"a JSON patch":  {Selector: sized("7"), Target: deployments, JSONPatch: []v1alpha1.Operation{{Op: "replace", Path: "/spec/replicas", Value: rawJSON("7")}}},
		"CEL":           {Selector: sized("7"), Target: deployments, CEL: []v1alpha1.Expression{{Path: "/spec/replicas", Expression: `int(cluster.labels["size"])`}}},
	} {
		for size, want := range map[string]int64{"7": 7, "2": 1} {
			all, err := desired(withOverride(o), map[string]string{"size": size})
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
	desired := desiredBy(t)
	r := withOverride(v1alpha1.Override{Target: v1alpha1.Target{Name: "nginx"}, CEL: []v1alpha1.Expression{
		{Path: "/metadata/annotations/example.com~1in", Expression: `cluster.name + "-" + object.metadata.name`},
		{Path: "/spec/template/spec/containers/0/image", Expression: `object.spec.template.spec.containers[0].name + ":1.30"`},
	}})
	all, err := desired(r, nil)
	must(t, err)
	containers, _, _ := unstructured.NestedSlice(all[0].Object, "spec", "template", "spec", "containers")
	if image := containers[0].(map[string]any)["image"]; all[0].GetAnnotations()["example.com/in"] != "east-nginx" || image != "nginx:1.30" { //nolint:forcetypeassert // a container is a map
		t.Errorf("it is %v", all[0].Object)
	}
}

func TestWhatIsWrongWithAnObjectIsToldAndOthersProceed(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	on := v1alpha1.Target{Name: "nginx"}
	cel := func(expression string) v1alpha1.Override {
		return v1alpha1.Override{Target: on, CEL: []v1alpha1.Expression{{Path: "/spec/replicas", Expression: expression}}}
	}
	for name, c := range map[string]struct {
		v1alpha1.Override

		says string
	}{
		"a label that is a number": {cel(`cluster.labels["tier"] == 3 ? 1 : 2`), "no matching overload for '_==_' applied to '(string, int)'"},
		"has of labels":            {cel(`has(cluster.labels) ? 1 : 2`), "undeclared reference to 'cluster'"},
		"functions of strings":     {cel(`"a".replace("a", "b")`), "undeclared reference to 'replace'"},
		"no such label":            {cel(`int(cluster.labels["size"])`), "no such key: size"},
		"no CEL":                   {cel(`1 +`), "Syntax error"},
		"another variable":         {cel(`secrets`), "undeclared reference to 'secrets'"},
		"no value":                 {cel(`1 / 0`), "division by zero"},
		"loops in loops":           {cel("[[" + strings.Repeat("1,", 999) + "1]].map(h, h.map(x, h.map(y, h.map(z, x))))"), "cost limit"},
		"deeper than any":          {cel("true ? " + strings.Repeat("(", 300) + "1" + strings.Repeat(")", 300) + " : 1"), "recursion limit"},
		"deeper than objects":      {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"spec":` + nested(mostDepth, "1") + `}`)}, "spec.overrides[0] of Deployment nginx: mergePatch: its maps and lists are more than 64 deep"},
		"a path into a number":     {v1alpha1.Override{Target: on, CEL: []v1alpha1.Expression{{Path: "/spec/replicas/x", Expression: "1"}}}, "neither a map nor a list"},
		"a path beyond a list":     {v1alpha1.Override{Target: on, CEL: []v1alpha1.Expression{{Path: "/spec/template/spec/containers/9", Expression: "1"}}}, "the list is shorter"},
		"deeper in a JSON patch":   {v1alpha1.Override{Target: on, JSONPatch: []v1alpha1.Operation{{Op: "add", Path: "/x", Value: rawJSON(nested(mostDepth+1, "1"))}, {Op: "remove", Path: "/x"}}}, "spec.overrides[0] of Deployment nginx: jsonPatch[0].value: its maps and lists are more than 64 deep"},
		"another name":             {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"metadata":{"name":"x"}}`)}, "must not change"},
		"another namespace":        {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"metadata":{"namespace":"kube-system"}}`)}, "must not change"},
		"another kind":             {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"kind":"Secret","apiVersion":"v1"}`)}, "must not change"},
		"no object":                {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"kind":null}`)}, "is no object"},
		"a selector of nothing":    {v1alpha1.Override{Target: on, Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}, MergePatch: rawJSON(`{}`)}, "not a valid label selector operator"},
		"a patch that fails":       {v1alpha1.Override{Target: on, JSONPatch: []v1alpha1.Operation{{Op: "test", Path: "/kind", Value: rawJSON(`"Secret"`)}}}, "jsonPatch"},
		"more than a megabyte":     {v1alpha1.Override{Target: on, MergePatch: rawJSON(`{"spec":{"x":"` + strings.Repeat("x", mostBytes) + `"}}`)}, "more than"},
	} {
		all, err := desired(withOverride(c.Override), map[string]string{"tier": "3"})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "spec.") {
			t.Errorf("%s: the error is %.300v", name, err)
		}
		if len(all) != 1 || all[0].GetName() != "plain" {
			t.Errorf("%s: %d others proceed", name, len(all))
		}
	}
}

// TestMetadataThatOverridesMakeCrookedIsRefused: with one annotation that is a number, all were dropped, and so was that the object is to stay.
func TestMetadataThatOverridesMakeCrookedIsRefused(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	patch := func(text string) v1alpha1.Override { return v1alpha1.Override{MergePatch: rawJSON(text)} }
	for name, c := range map[string]struct {
		o    v1alpha1.Override
		says string
	}{
		"CEL":             {expressionsOf("/metadata/annotations/size", `int(cluster.labels["size"])`), "metadata.annotations.size is no text"},
		"a merge patch":   {patch(`{"metadata":{"annotations":{"size":7}}}`), "metadata.annotations.size is no text"},
		"a JSON patch":    {v1alpha1.Override{JSONPatch: []v1alpha1.Operation{{Op: "add", Path: "/metadata/labels", Value: rawJSON(`["secret"]`)}}}, "metadata.labels is no map"},
		"a label":         {patch(`{"metadata":{"labels":{"size":true}}}`), "metadata.labels.size is no text"},
		"finalizers":      {patch(`{"metadata":{"finalizers":"secret"}}`), "metadata.finalizers is no list"},
		"ownerReferences": {patch(`{"metadata":{"ownerReferences":[1]}}`), "metadata.ownerReferences[0] is no map"},
	} {
		kept := configMap("kept")
		kept.Annotations = map[string]string{dependents.DeletionPolicyAnnotation: "Orphan"}
		r := replicator("r", nil, configMap("plain"), kept)
		c.o.Target.Name = "kept"
		r.Spec.Overrides = []v1alpha1.Override{c.o}
		all, err := desired(r, map[string]string{"size": "7"})
		if len(all) != 1 || all[0].GetName() != "plain" || err == nil || err.Error() != "spec.manifests[1]: "+c.says {
			t.Errorf("%s: there are %d objects, and the error is %v", name, len(all), err)
		}
	}
}

// TestErrorsOfOverridesAreShortWhateverTheyQuote: a path of a thousand characters that cannot be shown made 14 KB for each object.
func TestErrorsOfOverridesAreShortWhateverTheyQuote(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	hidden := strings.Repeat("\U000e0001", 1000)
	for name, o := range map[string]v1alpha1.Override{
		"no index":              expressionsOf("/metadata/finalizers/"+hidden, "1"),
		"no map":                expressionsOf("/kind/"+hidden, "1"),
		"a label that is not":   expressionsOf("/x", "cluster.labels['"+hidden+"']"),
		"an unknown variable":   expressionsOf("/x", strings.Repeat("v", 4000)),
		"a path of a patch":     {JSONPatch: []v1alpha1.Operation{{Op: "replace", Path: "/x/" + hidden, Value: rawJSON("1")}}},
		"an object of no kind":  {MergePatch: rawJSON(`{"kind":null,"x":"` + strings.Repeat("x", 100_000) + `"}`)},
		"what is no identifier": {JSONPatch: []v1alpha1.Operation{{Op: "replace", Path: "/metadata/name", Value: rawJSON(`["` + hidden + `"]`)}}},
	} {
		cm := configMap("plain")
		cm.Finalizers = []string{"example.com/a"}
		r := replicator("r", nil, cm)
		r.Spec.Overrides = []v1alpha1.Override{o}
		_, err := desired(r, nil)
		if text := fmt.Sprint(err); err == nil || len(text) > mostSaid+100 || strings.Contains(text, "\\U") {
			t.Errorf("%s: the error has %d bytes: %.500s", name, len(text), text)
		}
	}
}

// TestObjectsForATargetAreBoundedTogether: each of a hundred may have a megabyte, and sixteen workers hold them while they write. Those that
// have room are returned.
func TestObjectsForATargetAreBoundedTogether(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	const each = mostBytes - mostBytes/16
	objs := make([]client.Object, mostOfAll/each+2)
	for i := range objs {
		objs[i] = configMap(fmt.Sprintf("large-%d", i), "a", strings.Repeat("a", each))
	}
	all, err := desired(replicator("r", nil, objs...), nil)
	if err == nil || !strings.Contains(err.Error(), "together") || strings.Count(err.Error(), "together") > 1 || len(all) != mostOfAll/each {
		t.Errorf("there are %d of %d objects, and the error is %.300v", len(all), len(objs), err)
	}
}

func TestObjectsSayNothingAboutWhoseTheyAre(t *testing.T) {
	t.Parallel()
	desired := desiredBy(t)
	cm := configMap("claims")
	cm.Annotations = map[string]string{
		"owner.fleet-runtime.dev/abc": "{}", "fleet-runtime.dev/created-by": "x", "fleet-runtime.dev/wave": "1",
		"kubectl.kubernetes.io/last-applied-configuration": "secret", "example.com/a": "b",
	}
	cm.Labels = map[string]string{"fleet-runtime.dev/fleet": "other", v1alpha1.SourceLabel: "true"}
	cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "1"}}
	all, err := desired(replicator("r", nil, cm), nil)
	must(t, err)
	if a := all[0].GetAnnotations(); len(a) != 2 || a["fleet-runtime.dev/wave"] != "1" || a["example.com/a"] != "b" ||
		len(all[0].GetLabels())+len(all[0].GetOwnerReferences()) > 0 {
		t.Errorf("it is %v", all[0].Object)
	}
}

// TestPoliciesOfAManifestAreKept, as they say what becomes of the object in members, but for one that takes what others have.
func TestPoliciesOfAManifestAreKept(t *testing.T) {
	t.Parallel()
	cm := configMap("a")
	cm.Annotations = map[string]string{
		dependents.DeletionPolicyAnnotation: "Orphan", dependents.ChangeAnnotation: "CreateOnly", dependents.SuspendAnnotation: "true",
		dependents.ConflictAnnotation: string(dependents.AdoptUnowned),
	}
	desired := desiredBy(t)
	all, err := desired(replicator("r", nil, cm), nil)
	must(t, err)
	if got := all[0].GetAnnotations(); !maps.Equal(got, cm.Annotations) {
		t.Errorf("what is desired has the policies %v, want %v", got, cm.Annotations)
	}
	cm.Annotations[dependents.ConflictAnnotation] = string(dependents.Adopt)
	if all, err := desired(replicator("r", nil, cm), nil); err == nil || len(all) > 0 {
		t.Errorf("of another Replicator it would take %v, and the error is %v", all, err)
	}
}

// TestASpecThatCannotBeDecodedDesiresNothingKnown: it is an error, as what it has stays.
func TestASpecThatCannotBeDecodedDesiresNothingKnown(t *testing.T) {
	t.Parallel()
	r := replicator("r", nil, configMap("a"))
	r.Spec.Manifests, r.Spec.DecodeError = nil, "a number for a name"
	if all, err := desiredBy(t)(r, nil); err == nil {
		t.Errorf("%d objects are desired, without an error", len(all))
	}
}

func rawJSON(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
