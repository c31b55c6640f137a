package mcmanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// hostile is markup that names and messages may have, which are other people's words.
const hostile = `"><script>alert(1)</script>`

// worstSheet has everything that a page about a member can show, in hostile words.
func worstSheet(at time.Time) sheet {
	broken := &fleet.NotSynced{Kind: metav1.GroupKind{Kind: hostile}, Reason: hostile, Message: hostile, Since: at.Add(-time.Minute)}
	return sheet{Time: at, Role: leader, Sharding: &sharding.Status{}, memberRow: memberRow{
		Status: fleet.Status{
			Name: hostile, State: fleet.Unreachable, Reason: hostile, Message: hostile, Owner: hostile, Identity: hostile, Server: hostile,
			Duplicates: []fleet.ClusterName{hostile}, Labels: map[string]string{hostile: hostile}, Expires: at.Add(-time.Hour), Since: at,
		},
		Queues:  map[string]mcqueue.Stats{hostile: {Depth: 7, InFlight: 103, Paused: true}},
		History: []fleet.Transition{{Time: at.Add(-time.Hour), State: fleet.Ready}, {Time: at, State: fleet.Unreachable, Reason: hostile, Message: hostile}},
		Kinds:   []fleet.KindState{{Kind: metav1.GroupKind{Kind: "Secret"}, State: "Synced"}, {Kind: broken.Kind, State: "NotSynced", Failure: broken}},
		Running: map[string][]mcqueue.Running{hostile: {{Request: hostile, Since: at.Add(-90 * time.Second), Silent: true}}},
	}}
}

func TestThePageOfAMemberEscapesWhatItShows(t *testing.T) {
	page, err := worstSheet(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)).render()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), "<script") || strings.Count(string(page), "&lt;script&gt;") < 15 {
		t.Errorf("the page does not escape what it shows:\n%s", page)
	}
	for _, want := range []string{
		"expired at", ">1m30s</time>", "1h0m0s ago", "for a cluster that has not answered so far", `<td class="state Synced">Synced</td>`,
		`<td data-label="In flight">103</td>`, `<a href="?member=%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E">`,
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(string(page), "since <time") || strings.Contains(string(page), `"Since"`) {
		t.Errorf("the page says since when, and shows for how long:\n%s", page)
	}
	if latest, first := strings.Index(string(page), `<td class="state Unreachable">`), strings.Index(string(page), `<td class="state Ready">`); latest > first {
		t.Error("the latest transition is not the first one")
	}
}

// TestThePageOfAMemberShowsWhatRuns: as HTML and as JSON, of that member alone, and 404 for what is none.
func TestThePageOfAMemberShowsWhatRuns(t *testing.T) {
	f, _ := fleettest.Run(t, fleet.Options{})
	for _, name := range []fleet.ClusterName{"a", "b"} {
		if err := f.Set(fleet.Member{Name: name, Err: errors.New("broken")}); err != nil {
			t.Fatal(err)
		}
	}
	q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
	defer q.ShutDown()
	defer f.Controller("things").ShowQueue(q)()
	for i := range mostRunning + 3 {
		req := mcreconcile.Request{ClusterName: "a", Request: reconcile.Request{}}
		req.Name = fmt.Sprint("object-", i)
		q.Add(req)
		taken, _ := q.Get()
		defer q.Done(taken)
	}
	ask := func(target string) *httptest.ResponseRecorder {
		resp := httptest.NewRecorder()
		debugPage{f.Fleet, withoutElection, unshared}.ServeHTTP(resp, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
		return resp
	}
	resp := ask("/debug/fleet?member=a&format=json")
	var got members
	if err := json.Unmarshal(resp.Body.Bytes(), &got); err != nil || len(got.Members) != 1 {
		t.Fatalf("%v, %d members: %s", err, len(got.Members), resp.Body)
	}
	one := got.Members[0]
	if one.Name != "a" || len(one.History) == 0 || one.History[0].State != fleet.Pending || len(one.Running["things"]) != mostRunning {
		t.Errorf("the JSON has %+v", one)
	}
	if page := ask("/debug/fleet?member=a").Body.String(); !strings.Contains(page, "3 more run.") || strings.Contains(page, "?member=b") {
		t.Errorf("the page is not about what runs of a:\n%s", page)
	}
	for _, format := range []string{"", "&format=json"} {
		if resp := ask("/debug/fleet?member=%3Cb%3E" + format); resp.Code != http.StatusNotFound || !strings.HasPrefix(resp.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("of what is no member: %d %v %s", resp.Code, resp.Header(), resp.Body)
		}
	}
	if strings.Contains(ask("/debug/fleet?format=json").Body.String(), `"history"`) {
		t.Error("the JSON of all members has their histories")
	}
}
