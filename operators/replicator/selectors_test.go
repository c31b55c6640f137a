package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// selectorOf returns one with a label, an expression, and this many values of that.
func selectorOf(values int) *metav1.LabelSelector {
	s := sized("2")
	s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpNotIn}}
	for i := range values {
		s.MatchExpressions[0].Values = append(s.MatchExpressions[0].Values, fmt.Sprint(i))
	}
	return s
}

func TestAnEmptySelectorSelectsNothing(t *testing.T) {
	t.Parallel()
	for _, selector := range []*metav1.LabelSelector{nil, {}} {
		if s, err := compiled(selector); err != nil || s.Matches(labels.Set{"a": "b"}) {
			t.Errorf("%v selects: %v, %v", selector, s, err)
		}
	}
}

// TestASelectorThatTakesLongIsRefusedAtOnce: one of 180,000 values took 39 ms for each member, and errors about wrong values take longer.
func TestASelectorThatTakesLongIsRefusedAtOnce(t *testing.T) { //nolint:paralleltest // it counts allocations
	valued := func(value string, n int) *metav1.LabelSelector {
		s := selectorOf(0)
		for range n {
			s.MatchExpressions[0].Values = append(s.MatchExpressions[0].Values, value)
		}
		return s
	}
	keyed := func(key string, n int) *metav1.LabelSelector {
		s := &metav1.LabelSelector{}
		for range n {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		}
		return s
	}
	large := strings.Repeat("x", mostBytes)
	for name, c := range map[string]struct {
		of   *metav1.LabelSelector
		says string
	}{
		"as many as may be": {selectorOf(mostSelected - 2), ""},
		"one value more":    {selectorOf(mostSelected - 1), "it has 251 labels"},
		"many values":       {selectorOf(180_000), "it has 180002 labels"},
		"many expressions":  {keyed("a", 35_000), "it has 35000 labels"},
		"wrong values":      {valued("-", mostSelected-2), `"-" is no value of a label`},
		"a large value":     {valued(large, 1), "longer than the value of any label"},
		"a large label":     {&metav1.LabelSelector{MatchLabels: map[string]string{"a": large}}, "longer than the value of any label"},
		"a large key":       {keyed(large, 1), "longer than the name of any label"},
		"wrong keys":        {keyed("-", mostSelected), "key"},
		"no such operator":  {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}, "not a valid label selector operator"},
		"a large operator":  {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOperator(large)}}}, "x"},
	} {
		var err error
		allocated := testing.AllocsPerRun(1, func() { _, err = compiled(c.of) })
		if allocated > 10_000 || (c.says == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.says) || len(err.Error()) > mostSaid) {
			t.Errorf("%s: after %.0f allocations, the error is %.300v", name, allocated, err)
		}
	}
}

// TestASelectorThatWasStoredBeforeIsTold, and is no reason to panic: the API server may have taken more then.
func TestASelectorThatWasStoredBeforeIsTold(t *testing.T) {
	t.Parallel()
	r := withOverride(v1alpha1.Override{Target: v1alpha1.Target{Name: "nginx"}, Selector: selectorOf(mostSelected), MergePatch: rawJSON("{}")})
	r.Spec.Clusters.Selector, r.ResourceVersion = selectorOf(mostSelected), "7"
	written := &outdated{}
	if _, err := (&controller{statuses: written}).targets(t.Context(), r); err == nil || !strings.Contains(err.Error(), "spec.clusters.selector: it has 252") {
		t.Errorf("its targets: %v", err)
	}
	if !strings.Contains(written.text, `"reason":"Invalid"`) || !strings.Contains(written.text, "spec.clusters.selector: it has 252") {
		t.Errorf("its status is patched with %s", written.text)
	}
	must(t, (&controller{}).status(t.Context(), r, nil))
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSynced); c == nil || c.Reason != v1alpha1.ReasonInvalid {
		t.Errorf("once its targets were known, its status says %+v", c)
	}
	all, err := (&controller{}).desired(t.Context(), r, dependents.Target{Cluster: "east"})
	if len(all) != 1 || err == nil || !strings.Contains(err.Error(), "spec.overrides[0].selector: it has 252") {
		t.Errorf("there are %d objects, and the error is %v", len(all), err)
	}
}

// TestTargetsAreNotKnownWhileDecisionsCannotBeRead: what is there stays where it is.
func TestTargetsAreNotKnownWhileDecisionsCannotBeRead(t *testing.T) {
	t.Parallel()
	r := replicator("r", []string{"east"})
	r.Spec.Clusters.DecisionKey, r.ResourceVersion = "web", "7"
	c := &controller{hub: cached{}, fleet: fleet.New(fleet.Options{}), decisions: true}
	if _, err := c.targets(t.Context(), r); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
	written := &outdated{}
	c.decisions, c.statuses = false, written
	if _, err := c.targets(t.Context(), r); err == nil || !strings.Contains(err.Error(), "--placement-decisions") {
		t.Errorf("without the flag, the error is %v", err)
	}
	if !strings.Contains(written.text, "--placement-decisions") {
		t.Errorf("without the flag, the status is patched with %s", written.text)
	}
	must(t, c.status(t.Context(), r, nil))
	if said := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSynced); said == nil || said.Reason != v1alpha1.ReasonInvalid {
		t.Errorf("without the flag, the status of what was known before says %+v", said)
	}
}

// TestDecisionsNameClustersWithinBounds: tenants write them, and each Replicator keeps the names. What is cut is no member's name.
func TestDecisionsNameClustersWithinBounds(t *testing.T) {
	t.Parallel()
	c := &controller{namespace: "fleet"}
	for _, tc := range []struct{ namespace, profile, want string }{
		{"fleet", "east", "east"},
		{"team-a", "east", "team-a/east"},
		{"fleet", "", "fleet/"}, // and not the hub
		{"fleet", strings.Repeat("x", 15_000), strings.Repeat("x", fleet.MaxNameLength+1)},
		{"team-a", strings.Repeat("x", 15_000), "team-a/" + strings.Repeat("x", fleet.MaxNameLength-6)},
		{"fleet", strings.Repeat("x", fleet.MaxNameLength), strings.Repeat("x", fleet.MaxNameLength)},
	} {
		if got := c.memberOf(tc.namespace, tc.profile); string(got) != tc.want {
			t.Errorf("%s/%.20s is %.30q, of %d bytes", tc.namespace, tc.profile, string(got), len(got))
		}
	}
}
