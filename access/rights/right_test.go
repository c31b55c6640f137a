package rights_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fleet-runtime/fleet-runtime/access/rights"
)

func TestARightCoversAnother(t *testing.T) {
	for _, tc := range []struct {
		right, other string
		want         bool
	}{
		{"get pods", "get pods", true},
		{"get pods", "list pods", false},
		{"get pods", "get pods.metrics.k8s.io", false},
		{"get pods", "get pods a", true},
		{"get pods a", "get pods", false},
		{"get pods a", "get pods b", false},
		{"get pods", "get pods in default", true},
		{"get pods in default", "get pods", false},
		{"get pods in default", "get pods in other", false},
		{"get pods", "get pods/status", false},
		{"get pods/status", "get pods", false},
		{"get */status", "get pods/status", true},
		{"get */status", "get pods/log", false},
		{"get */status", "get pods", false},
		{"get pods/status", "get */status", false},
		{"* pods", "get pods", true},
		{"get pods", "* pods", false},
		{"get *", "get pods", true},
		{"get *", "get pods/status", true},
		{"get *", "get deployments.apps", false},
		{"get *.*", "get deployments.apps", true},
		{"get deployments.*", "get deployments.apps", true},
		{"get deployments.apps", "get deployments.*", false},
		{"* *.* in default", "delete deployments.apps x in default", true},
		{"* *.*", "get /metrics", false},
		{"get /metrics", "get /metrics", true},
		{"get /metrics", "get /metrics/slis", false},
		{"get /metrics/*", "get /metrics/slis", true},
		{"get /metrics/*", "get /metrics", false},
		{"get /*", "get /metrics/*", true},
		{"* /*", "get /metrics", true},
		{"get /metrics", "get metrics", false},
	} {
		t.Run(tc.right+" covers "+tc.other, func(t *testing.T) {
			if got := parse(t, tc.right).Covers(parse(t, tc.other)); got != tc.want {
				t.Errorf("Covers() = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestWhatIsNoRightIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "get", "get ", "get pods a b", "get pods in", "get /metrics a", "get /metrics in default", "get .apps", "get pods/", "get pods a in", "a b c d e f",
	} {
		if r, err := rights.Parse(text); err == nil && text != "get pods in" { // an object may have this name
			t.Errorf("Parse(%q) = %+v, want an error", text, r)
		}
	}
}

func TestRightsOfStrangersAreFitToBeShown(t *testing.T) {
	r := rights.Right{Verb: "get\x1b[31m", Resource: "pods\n", Name: strings.Repeat("x", 1e6), Namespace: "\u202ea"}
	if got := r.String(); len(got) > 2000 || strings.ContainsAny(got, "\x1b\n\u202e") {
		t.Errorf("String() = %.100q… of %d bytes", got, len(got))
	}
}

func TestWhatIsMissingIsNamedOnce(t *testing.T) {
	have := []rights.Right{parse(t, "get pods"), parse(t, "* secrets in a")}
	want := []rights.Right{
		parse(t, "watch pods"), parse(t, "get pods x in b"), parse(t, "delete secrets in b"), parse(t, "list secrets in a"), parse(t, "list pods"), parse(t, "watch pods"),
	}
	diff := cmp.Diff([]rights.Right{parse(t, "list pods"), parse(t, "watch pods"), parse(t, "delete secrets in b")}, rights.Missing(have, want))
	if diff != "" {
		t.Errorf("Missing() differs (-want, +got):\n%s", diff)
	}
}

func TestRulesAreGroupedAsPeopleWriteThem(t *testing.T) {
	all := make([]rights.Right, 0, 13)
	for _, text := range []string{
		"watch pods", "get pods", "list pods in a", "get /metrics", "get namespaces kube-system", "patch foos.example.com/status", "create events.events.k8s.io",
		"list configmaps", "get configmaps", "watch configmaps", "get leases.coordination.k8s.io a", "get leases.coordination.k8s.io b", "approve signers.certificates.k8s.io",
	} {
		all = append(all, parse(t, text))
	}
	want := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"kube-system"}, Verbs: []string{"get"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, Verbs: []string{"approve"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get"}},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}},
		{APIGroups: []string{"example.com"}, Resources: []string{"foos/status"}, Verbs: []string{"patch"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}
	for range 2 {
		if diff := cmp.Diff(want, rights.Rules(all)); diff != "" {
			t.Errorf("Rules() differs (-want, +got):\n%s", diff)
		}
		slices.Reverse(all)
	}
}

// FuzzRights: what is said of two rights agrees with what each of them allows.
func FuzzRights(f *testing.F) {
	for _, text := range []string{"get pods", "* *.*", "get */status in a", "list deployments.apps x in b", "get /metrics/*", "* /*"} {
		f.Add(text, "get pods/status a in b", "get /metrics")
	}
	f.Fuzz(func(t *testing.T, one, two, three string) {
		var all []rights.Right
		for _, text := range []string{one, two, three} {
			r, err := rights.Parse(text)
			if err != nil {
				return
			}
			if again, err := rights.Parse(r.String()); err == nil && again.String() != r.String() {
				t.Errorf("%q is read as %q", r, again)
			}
			all = append(all, r)
		}
		a, b, c := all[0], all[1], all[2]
		if !a.Covers(a) {
			t.Errorf("%q does not cover itself", a)
		}
		if a.Covers(b) && b.Covers(c) && !a.Covers(c) {
			t.Errorf("%q covers %q, which covers %q, but the first does not cover the last", a, b, c)
		}
		if isOne(b) && a.Covers(b) != allows(a, b) {
			t.Errorf("%q covers %q: %v", a, b, a.Covers(b))
		}
		for i := range all {
			all[i].Namespace = ""
		}
		want := rights.Missing(nil, all)
		if diff := cmp.Diff(want, rights.Of("", rights.Rules(all)...)); diff != "" {
			t.Errorf("rules of %q give others (-want, +got):\n%s", all, diff)
		}
	})
}

// isOne reports whether a right is that of one request.
func isOne(r rights.Right) bool { return !strings.Contains(r.Verb+r.Group+r.Resource+r.URL, "*") }

// allows decides as the authorizer of RBAC does.
func allows(rule, asked rights.Right) bool {
	is := func(rule, asked string) bool { return rule == "*" || rule == asked }
	if rule.Namespace != "" && rule.Namespace != asked.Namespace || !is(rule.Verb, asked.Verb) {
		return false
	}
	if asked.URL != "" || rule.URL != "" {
		prefix, isPrefix := strings.CutSuffix(rule.URL, "*")
		return rule.URL != "" && asked.URL != "" && (rule.URL == asked.URL || isPrefix && strings.HasPrefix(asked.URL, strings.TrimRight(prefix, "*")))
	}
	_, subresource, isSub := strings.Cut(asked.Resource, "/")
	return is(rule.Group, asked.Group) && (is(rule.Resource, asked.Resource) || isSub && rule.Resource == "*/"+subresource) &&
		(rule.Name == "" || rule.Name == asked.Name)
}

func parse(t *testing.T, text string) rights.Right {
	t.Helper()
	r, err := rights.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if r.String() != text {
		t.Fatalf("%q is read as %q", text, r)
	}
	return r
}
