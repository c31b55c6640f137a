package mcmanager

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
)

func (t table) names() (names []string) {
	for _, row := range t.Rows {
		names = append(names, string(row.Name))
	}
	return names
}

var configMaps = []fleet.NotSynced{{Kind: metav1.GroupKind{Kind: "ConfigMap"}, Reason: fleet.ReasonForbidden, Message: "no right"}}

func TestTheWorstMembersComeFirst(t *testing.T) {
	all := []fleet.Status{
		{Name: "a", State: fleet.Ready},
		{Name: "b", State: fleet.Draining, Reason: fleet.ReasonAnotherCluster},
		{Name: "c", State: fleet.Ready, NotSynced: configMaps, Reason: fleet.ReasonNotSynced},
		{Name: "d", State: fleet.Ready, Duplicates: []fleet.ClusterName{"x"}},
		{Name: "e", State: fleet.Pending},
		{Name: "f", State: fleet.Connecting},
		{Name: "g", State: fleet.Unreachable},
		{Name: "h", State: "Leaving"},
		{Name: "i", State: fleet.Unreachable},
		{Name: "j", State: fleet.Ready, Reason: fleet.ReasonInvalid},
		{Name: "k", State: fleet.Ready, NotSynced: configMaps},
	}
	got := newTable(all, nil, filter{})
	if diff := cmp.Diff([]string{"g", "i", "f", "e", "c", "j", "k", "b", "h", "d", "a"}, got.names()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	want := []count{
		{"Unreachable", "?state=Unreachable", 2},
		{"Connecting", "?state=Connecting", 1},
		{"Pending", "?state=Pending", 1},
		{"Draining", "?state=Draining", 1},
		{"Ready", "?state=Ready", 5},
		{"Leaving", "?state=Leaving", 1},
		{"NotSynced", "?state=NotSynced", 2},
	}
	if diff := cmp.Diff(want, got.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestTheFilterIsOfWordsAndAState(t *testing.T) {
	all := []fleet.Status{
		{Name: "shop-east", State: fleet.Ready, Labels: map[string]string{"tier": "gold"}, Identity: "5f0c"},
		{Name: "shop-west", State: fleet.Unreachable, Reason: fleet.ReasonRefused, Message: "dial tcp 10.0.0.1"},
		{Name: "bank-east", State: fleet.Ready, NotSynced: configMaps, Duplicates: []fleet.ClusterName{"twin"}},
	}
	for query, want := range map[string][]string{
		"":                             {"shop-west", "bank-east", "shop-east"},
		"text=EAST":                    {"bank-east", "shop-east"},
		"text=+east%09shop+":           {"shop-east"},
		"text=tier%3Dgold":             {"shop-east"},
		"text=5f0c":                    {"shop-east"},
		"text=refused":                 {"shop-west"},
		"text=10.0.0.1":                {"shop-west"},
		"text=configmap+forbidden":     {"bank-east"},
		"text=twin":                    {"bank-east"},
		"text=unreachable":             {"shop-west"},
		"text=nothing":                 nil,
		"state=Ready":                  {"bank-east", "shop-east"},
		"state=Ready&text=shop":        {"shop-east"},
		"state=NotSynced":              {"bank-east"},
		"state=Pending":                nil,
		"state=&text=":                 {"shop-west", "bank-east", "shop-east"},
		"other=1&text=bank&text=shop":  {"bank-east"},
		"text=.*":                      nil,
		"text=%25%27+OR+1%3D1":         nil,
		"text=%00":                     nil,
		"state=Ready&state=DROP+TABLE": {"bank-east", "shop-east"},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := filterOf(values)
		if err != nil {
			t.Fatalf("?%s: %v", query, err)
		}
		got := newTable(all, nil, chosen)
		if diff := cmp.Diff(want, got.names()); diff != "" {
			t.Errorf("?%s (-want +got):\n%s", query, diff)
		}
		if got.All != 3 || len(got.Counts) != 3 {
			t.Errorf("?%s: of a fleet of three, %d are counted: %v", query, got.All, got.Counts)
		}
	}
}

func TestTheFilterIsForProblemsToo(t *testing.T) {
	problems := []fleet.Problem{
		{Provider: "kubeconfig", About: "Secret a/b", Reason: "NoMember", Message: "the Secret is empty"},
		{Provider: "capi", About: "Cluster a/c", Member: "c", Reason: "Forbidden"},
	}
	for text, want := range map[string]int{"": 2, "a/": 2, "capi": 1, "empty": 1, "forbidden c": 1, "else": 0} {
		chosen, err := filterOf(url.Values{"text": {text}})
		if err != nil {
			t.Fatal(err)
		}
		if got := newTable(nil, slices.Clone(problems), chosen).Problems; len(got) != want {
			t.Errorf("%q: %d problems, want %d: %v", text, len(got), want, got)
		}
	}
}

func TestLabelsThatAllHaveAreShownOnce(t *testing.T) {
	got := newTable([]fleet.Status{
		{Name: "a", State: fleet.Ready, Labels: map[string]string{"env": "prod", "region": "east", "gpu": ""}},
		{Name: "b", State: fleet.Ready, Labels: map[string]string{"env": "prod", "region": "west"}},
	}, nil, filter{words: []string{"a"}})
	if diff := cmp.Diff([]label{{"env", "prod"}}, got.Common); diff != "" {
		t.Errorf("common (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]label{{"gpu", ""}, {"region", "east"}}, got.Rows[0].Apart); diff != "" {
		t.Errorf("of the one that passes (-want +got):\n%s", diff)
	}
}

func TestARowHasSomeLabelsAndKindsAndSaysHowManyMore(t *testing.T) {
	busiest := fleet.Status{Name: "busiest", State: fleet.Ready, Labels: map[string]string{}}
	for i := range 20 {
		busiest.Labels[fmt.Sprint("l", i)] = ""
		busiest.NotSynced = append(busiest.NotSynced, configMaps...)
	}
	row := newTable([]fleet.Status{busiest, {Name: "other"}}, nil, filter{words: []string{"busiest"}}).Rows[0]
	if len(row.Apart) != 8 || row.MoreLabels != 12 || len(row.NotSynced) != 8 || row.MoreKinds != 12 {
		t.Errorf("%d labels and %d more, %d kinds and %d more, want 8 and 12 of both",
			len(row.Apart), row.MoreLabels, len(row.NotSynced), row.MoreKinds)
	}
}

// TestHostileQueriesAreRefused: what cannot be meant is told, and nothing of it comes back as HTML.
func TestHostileQueriesAreRefused(t *testing.T) {
	f, _ := fleettest.Run(t, fleet.Options{})
	page := debugPage{f.Fleet, withoutElection, unshared}
	for query, code := range map[string]int{
		"text=" + strings.Repeat("a", 256):                            200,
		"text=" + strings.Repeat("a", 257):                            400,
		"text=" + strings.Repeat("+", 100_000):                        400,
		"text=%ff%fe":                                                 400,
		"state=%3Cscript%3E":                                          400,
		"state=" + strings.Repeat("x", 100_000):                       400,
		"text=%3Cscript%3Ealert(1)%3C/script%3E":                      200,
		"text=%22+autofocus+onfocus%3Dalert(1)+x%3D%22":               200,
		"text=%00%01%e2%80%ae":                                        200,
		"text=%zz&state=%zz":                                          200, // is not parsed, and asks for nothing
		strings.Repeat("text=a&", 10_000):                             200,
		"format=json&text=%3Cscript%3E":                               200,
		"format=%3Cscript%3E":                                         200,
		"state=Ready&format=json&state=%3Cscript%3E&text=javascript:": 200,
	} {
		resp := httptest.NewRecorder()
		page.ServeHTTP(resp, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/fleet?"+query, nil))
		body := resp.Body.String()
		if resp.Code != code {
			t.Errorf("?%.60s: answered %d, want %d: %.200s", query, resp.Code, code, body)
		}
		if len(body) > 10_000 || strings.Contains(body, "<script") || strings.Contains(body, `" autofocus`) {
			t.Errorf("?%.60s: the body has what was asked for: %.3000s", query, body)
		}
		if kind := resp.Header().Get("Content-Type"); code == 400 && kind != "text/plain; charset=utf-8" {
			t.Errorf("?%.60s: refused as %s", query, kind)
		}
	}
}

// TestAVeryLargeFleetIsShownInPart: the worst of it, with what is left out.
func TestAVeryLargeFleetIsShownInPart(t *testing.T) {
	all := make([]fleet.Status, 20_000)
	for i := range all {
		labels := map[string]string{"env": "prod", "number": fmt.Sprint(i)}
		for j := range 20 {
			labels[fmt.Sprint("label-", j)] = strings.Repeat("v", 60) + fmt.Sprint(i%2)
		}
		all[i] = fleet.Status{
			Name: fleet.ClusterName(fmt.Sprint("member-", i)), Labels: labels, State: fleet.Unreachable,
			Reason: fleet.ReasonRefused, Message: strings.Repeat("<x>", 100),
		}
	}
	problems := make([]fleet.Problem, 2000)
	for i := range problems {
		problems[i] = fleet.Problem{Provider: "kubeconfig", About: fmt.Sprint("Secret ", i), Reason: "NoMember"}
	}
	show := func(query string) string {
		values, _ := url.ParseQuery(query)
		chosen, err := filterOf(values)
		if err != nil {
			t.Fatal(err)
		}
		page, err := newTable(all, slices.Clone(problems), chosen).render()
		if err != nil {
			t.Fatal(err)
		}
		return string(page)
	}
	body := show("")
	for what, want := range map[string]int{
		"<tr>\n<th scope=\"row\"": mostRows + mostProblems, "The worst 1000 are shown": 1, "1900 more problems are not shown": 1,
	} {
		if got := strings.Count(body, what); got != want {
			t.Errorf("the page has %q %d times, want %d", what, got, want)
		}
	}
	if most := 4 << 20; len(body) > most {
		t.Errorf("the page has %d bytes, want at most %d", len(body), most)
	}
	if body := show("text=member-19999"); !strings.Contains(body, "1 of 20000 pass the filter") || !strings.Contains(body, ">member-19999<") {
		t.Errorf("the last member is not to be found:\n%.3000s", body)
	}
}
