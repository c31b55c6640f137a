package stage

import (
	"strings"
	"testing"
)

func TestARuleThatGivesTooMuchIsFound(t *testing.T) {
	watch := func(namespace string) right { return right{"watch", "batch", "jobs", namespace, ""} }
	cases := map[string]struct {
		rule  right
		asked []right
		want  string // in what is said
	}{
		"Used":                    {watch("a"), []right{watch("a")}, ""},
		"UsedElsewhere":           {watch("a"), []right{watch("b")}, "nobody"},
		"AnotherVerb":             {right{"list", "batch", "jobs", "a", ""}, []right{watch("a")}, "nobody"},
		"GetBesideCreate":         {right{"get", "batch", "jobs", "a", ""}, []right{{"create", "batch", "jobs", "a", ""}}, "nobody"},
		"EverywhereAtOnce":        {watch(""), []right{watch("")}, ""},
		"EverywhereForOne":        {watch(""), []right{watch("a")}, "in the namespace a alone"},
		"EverywhereForTwoNames":   {right{"get", "", "pods", "", ""}, []right{{"get", "", "pods", "a", "x"}, {"get", "", "pods", "a", "y"}}, "in the namespace a alone"},
		"EverywhereForTwo":        {watch(""), []right{watch("a"), watch("b")}, ""},
		"WithoutNamespaces":       {right{"get", "", "namespaces", "", "kube-system"}, []right{{"get", "", "namespaces", "", "kube-system"}}, ""},
		"OfAnotherName":           {right{"get", "", "namespaces", "", "kube-system"}, []right{{"get", "", "namespaces", "", "default"}}, "nobody"},
		"EventsThatRepeat":        {right{"patch", "events.k8s.io", "events", "a", ""}, nil, ""},
		"TheStatusIsNotTheObject": {right{"patch", "", "pods/status", "a", ""}, []right{{"patch", "", "pods", "a", "x"}}, "nobody"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			said := tc.rule.tooMuch(tc.asked)
			if (said == "") != (tc.want == "") || !strings.Contains(said, tc.want) {
				t.Errorf("tooMuch() = %q, want it to say %q", said, tc.want)
			}
		})
	}
}
