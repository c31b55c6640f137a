package mcmanager

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

func withoutElection() role { return alone }

func unshared() *sharding.Status { return nil }

// TestAReplicaThatSharesMembersShowsWhoHasWhat: with the session that is silent, what moves, and what nobody owns.
func TestAReplicaThatSharesMembersShowsWhoHasWhat(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	f, _ := fleettest.Run(t, fleet.Options{})
	status := &sharding.Status{
		Replica: "shop-1", Session: "shop.s.shop-1-x", Pool: "large", State: sharding.Suspended, SuspendedSince: at, Problem: "<b>hub</b>",
		MembersWithoutOwner: 3, MaxOverMean: 1.25, Replicas: []sharding.ReplicaStatus{
			{Session: "shop.s.shop-1-x", Replica: "shop-1", Revision: "r2", Live: true, Members: 7, Weight: 9, Capacity: 2},
			{Session: "shop.s.shop-2-y", Replica: "shop-2", SilentSeconds: 12.4, Capacity: 1, Weight: 3.25, CostProblem: "<b>no costs</b>", AnotherFleet: "<b>others</b>"},
			{Replica: "shop-3", Live: true, Draining: true},
		},
		Moves: []sharding.Move{{From: "shop.s.shop-3-z", To: "shop.s.shop-1-x", Members: 4, Since: at.Add(-time.Minute)}},
	}
	page := debugPage{f.Fleet, withoutElection, func() *sharding.Status { return status }}
	html, err := page.html(at, filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"one of those that share the members", `<th scope="col">Owner</th>`, "3 members have no owner", "&lt;b&gt;hub", "1.25 of the mean", "of pool large",
		"silent for 12 s", `<td data-label="Weight">9</td>`, `<td data-label="Weight">3.25 <span class="Unreachable">&lt;b&gt;no costs`, "of another fleet: &lt;b&gt;others", `<span class="Leaving">leaving</span>`, "4 members have been moving from shop.s.shop-3-z to shop.s.shop-1-x", ">1m0s</time>",
		`is <span class="Suspended">Suspended</span> since <time datetime="2030-01-02T03:04:05Z">`,
	} {
		if !strings.Contains(string(html), want) {
			t.Errorf("the page has no %q:\n%s", want, html)
		}
	}
	data, err := page.json(at, filter{})
	if err != nil || !strings.Contains(string(data), `"membersWithoutOwner": 3`) {
		t.Errorf("the JSON has no status of sharding: %v\n%s", err, data)
	}
}

// TestTheTableShowsEveryMemberAndEscapes: names, labels and messages are other people's words.
func TestTheTableShowsEveryMemberAndEscapes(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	chosen, err := filterOf(url.Values{"text": {`"><script>`}})
	if err != nil {
		t.Fatal(err)
	}
	all := []fleet.Status{
		{
			Name: "east", State: fleet.Ready, Since: at.Add(-90 * time.Minute),
			Labels: map[string]string{"tier": "a", "region": "east", "env": "<prod>"},
			Reason: fleet.ReasonNotSynced, Message: "ConfigMap: Forbidden: no right to list", NotSynced: []fleet.NotSynced{
				{Kind: metav1.GroupKind{Kind: "ConfigMap"}, Reason: fleet.ReasonForbidden, Message: "no right to list", Since: at.Add(-time.Minute)},
			},
			Identity: "5f0c-aa", Duplicates: []fleet.ClusterName{"<twin>"}, Expires: at.Add(time.Hour),
		},
		{
			Name: `<script>alert("name")</script>`, State: fleet.Unreachable, Since: at, Attempts: 2,
			Reason: `"><img src=x>`, Message: "<b>bold</b>", Labels: map[string]string{"<i>": "</table>", "env": "<prod>"},
			NotSynced: []fleet.NotSynced{{Kind: metav1.GroupKind{Kind: "<u>", Group: "<g>"}, Reason: "<r>", Message: "javascript:alert(1)", Since: at}},
			Identity:  `"><p>`, Expires: at.Add(365 * 24 * time.Hour),
		},
	}
	page := newTable(all, []fleet.Problem{
		{Provider: "kubeconfig", About: "Secret fleet/east", Reason: "NoMember", Message: "the Secret is empty", Since: at.Add(-time.Minute)},
		{Provider: "<a>", About: "<b>", Member: "<c>", Reason: "<d>", Message: "<e>", Since: at},
	}, filter{})
	page.Time, page.Role, page.Filter = at, standby, chosen
	page.Counts = counts(all, chosen)
	page.Rows[1].Queues = map[string]mcqueue.Stats{"shop": {Depth: 3, InFlight: 2}}
	page.Rows[0].Queues = map[string]mcqueue.Stats{"<s>": {Depth: 1, Paused: true}}
	got, err := page.render()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/table.html")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(got), "<body>\n")
	if diff := cmp.Diff(string(want), table); diff != "" {
		t.Errorf("testdata/table.html and the page's body (-want, +got):\n%s", diff)
	}
}

func TestProblemsOfDiscoveryShow(t *testing.T) {
	f, _ := fleettest.Run(t, fleet.Options{})
	f.SetProblem(fleet.Problem{Provider: "kubeconfig", About: "Secret fleet/east", Reason: "NoMember"})
	for target, want := range map[string]string{
		"/debug/fleet": ">Secret fleet/east</td>", "/debug/fleet?format=json": `"about": "Secret fleet/east"`,
	} {
		resp := httptest.NewRecorder()
		debugPage{f.Fleet, withoutElection, unshared}.ServeHTTP(resp, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
		if !strings.Contains(resp.Body.String(), want) {
			t.Errorf("%s has no %q:\n%s", target, want, resp.Body)
		}
	}
}

func TestThePageIsHTMLForPeopleAndJSONForPrograms(t *testing.T) {
	f, _ := fleettest.Run(t, fleet.Options{})
	if err := f.Set(fleet.Member{Name: "a", Err: errors.New("broken")}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		method, target, accept string
		code                   int
		contentType            string
		body                   string
	}{
		"Browser":    {http.MethodGet, "/debug/fleet", "text/html,application/xhtml+xml,*/*;q=0.8", 200, "text/html; charset=utf-8", ">a</a></th>"},
		"Anything":   {http.MethodGet, "/debug/fleet", "*/*", 200, "text/html; charset=utf-8", ">a</a></th>"},
		"AcceptJSON": {http.MethodGet, "/debug/fleet", "application/json", 200, "application/json", `"name": "a"`},
		"AskForJSON": {http.MethodGet, "/debug/fleet?format=json", "", 200, "application/json", `"name": "a"`},
		"Head":       {http.MethodHead, "/debug/fleet", "", 200, "text/html; charset=utf-8", ""},
		"Write":      {http.MethodPost, "/debug/fleet", "", 405, "text/plain; charset=utf-8", "can only be read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequestWithContext(t.Context(), tc.method, tc.target, nil)
			req.Header.Set("Accept", tc.accept)
			resp := httptest.NewRecorder()
			debugPage{f.Fleet, withoutElection, unshared}.ServeHTTP(resp, req)
			if resp.Code != tc.code || resp.Header().Get("Content-Type") != tc.contentType {
				t.Errorf("answered %d with %s, want %d with %s", resp.Code, resp.Header().Get("Content-Type"), tc.code, tc.contentType)
			}
			if !strings.Contains(resp.Body.String(), tc.body) {
				t.Errorf("the body has no %q:\n%s", tc.body, resp.Body)
			}
			if allow := resp.Header().Get("Allow"); tc.code == http.StatusMethodNotAllowed && allow != "GET, HEAD" {
				t.Errorf("allowed is %q", allow)
			}
			if tc.code == http.StatusOK {
				mustBeConfined(t, resp.Header())
			}
		})
	}
}

// mustBeConfined fails the test unless a browser keeps the page nowhere, takes it for nothing else, and runs nothing that it has.
func mustBeConfined(t *testing.T, h http.Header) {
	t.Helper()
	if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none';") {
		t.Errorf("the headers are %v", h)
	}
}

// TestThePageShowsQueuesThatHaveWork, the role of the replica, and when that was so.
func TestThePageShowsQueuesThatHaveWork(t *testing.T) {
	f, _ := fleettest.Run(t, fleet.Options{})
	if err := f.Set(fleet.Member{Name: "a", Err: errors.New("broken")}); err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"busy", "idle"} {
		q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
		defer q.ShutDown()
		defer f.Controller(controller).ShowQueue(q)()
		if controller == "busy" {
			q.Add(mcreconcile.Request{ClusterName: "a"})
		}
	}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	page, err := debugPage{f.Fleet, func() role { return leader }, unshared}.html(now, filter{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"busy: 1 / 0": true, "idle: ": false, "This replica is the leader": true, "2030-01-02T03:04:05Z": true,
	} {
		if strings.Contains(string(page), text) != want {
			t.Errorf("the page has %q: %t, want %t:\n%s", text, !want, want, page)
		}
	}
}

func TestTheRoleOfAReplicaFollowsTheElection(t *testing.T) {
	never, elected := make(chan struct{}), make(chan struct{})
	close(elected)
	byName, byLock := Options{}, Options{}
	byName.LeaderElection = true
	byLock.LeaderElectionResourceLockInterface = &resourcelock.LeaseLock{}
	for name, tc := range map[string]struct {
		opts    Options
		elected chan struct{}
		want    role
	}{
		"no election": {Options{}, elected, alone},
		"waits":       {byName, never, standby},
		"leads":       {byName, elected, leader},
		"a lock":      {byLock, never, standby},
	} {
		if got := roleOf(tc.opts, tc.elected)(); got != tc.want {
			t.Errorf("%s: the role is %s, want %s", name, got, tc.want)
		}
	}
}
