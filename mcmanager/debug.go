package mcmanager

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// debugPath is where the metrics server shows the members.
const debugPath = "/debug/fleet"

// debugPage shows every member with its state, and what keeps providers from discovering: as a table for people, or as JSON
// for those that accept it, or ask for it with ?format=json. It has what status, labels and queues say, and no credentials.
// It is safe for concurrent use.
type debugPage struct {
	fleet   *fleet.Fleet
	role    func() role
	sharing func() *sharding.Status // nil if this replica shares the members with no others
}

// role says what a replica does.
type role string

const (
	alone   role = "alone" // there is no leader election
	leader  role = "leader"
	standby role = "standby"
)

// roleOf returns what tells the role of a manager.
func roleOf(opts Options, elected <-chan struct{}) func() role {
	if !opts.LeaderElection && opts.LeaderElectionResourceLockInterface == nil {
		return func() role { return alone }
	}
	return func() role {
		select {
		case <-elected:
			return leader
		default:
			return standby
		}
	}
}

// showMembers adds the page to the metrics server, behind the same filter as the metrics, if there is a server.
func (m *mcManager) showMembers(opts Options) error {
	if opts.Metrics.BindAddress == "0" { // there is none
		return nil
	}
	if err := m.AddMetricsServerExtraHandler(debugPath, debugPage{m.fleet, roleOf(opts, m.Elected()), m.sharing}); err != nil {
		return fmt.Errorf("showing the members at %s of the metrics server: %w", debugPath, err)
	}
	return nil
}

// sharing says how the replicas share the members.
func (m *mcManager) sharing() *sharding.Status {
	replica, ok := m.ownership.(*sharding.Replica)
	if !ok {
		return nil
	}
	status := replica.Status()
	return &status
}

// members is what the page shows.
type members struct {
	Time     time.Time           `json:"time"`
	Role     role                `json:"role"`
	Sharding *sharding.Status    `json:"sharding,omitempty"`
	States   map[fleet.State]int `json:"states"`
	Problems []fleet.Problem     `json:"problems"`
	Members  []memberRow         `json:"members"`
}

type memberRow struct {
	fleet.Status
	// Queues has the figures of the member by controller.
	Queues map[string]mcqueue.Stats `json:"queues,omitempty"`
	// What follows is there if the page is about one member.
	History []fleet.Transition           `json:"history,omitempty"` // the oldest first
	Kinds   []fleet.KindState            `json:"kinds,omitempty"`
	Running map[string][]mcqueue.Running `json:"running,omitempty"` // by controller, the oldest first
}

// moment is a time that a page shows as how long ago it was.
type moment struct{ Now, At time.Time }

//go:embed debug.html debugmember.html debugframe.html
var debugHTML embed.FS

var debugTemplates = template.Must(template.New("").Funcs(template.FuncMap{
	"time":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ago":    func(now, t time.Time) string { return now.Sub(t).Truncate(time.Second).String() },
	"moment": func(now, t time.Time) moment { return moment{now, t} },
	"page":   pageOf,
	"backward": func(all []fleet.Transition) []fleet.Transition {
		all = slices.Clone(all)
		slices.Reverse(all)
		return all
	},
	"expires": func(now, t time.Time) bool { return !t.IsZero() && t.Sub(now) < soon },
}).ParseFS(debugHTML, "*.html"))

// ServeHTTP implements http.Handler.
func (p debugPage) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the fleet can only be read", http.StatusMethodNotAllowed)
		return
	}
	chosen, err := filterOf(req.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	render, contentType := p.html, "text/html; charset=utf-8"
	if wantsJSON(req) {
		render, contentType = p.json, "application/json"
	}
	page, err := render(time.Now(), chosen)
	switch {
	case errors.Is(err, errNoMember):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	_, _ = w.Write(page) // a reader that has gone need not know
}

func wantsJSON(req *http.Request) bool {
	return req.URL.Query().Get("format") == "json" || strings.Contains(req.Header.Get("Accept"), "application/json")
}

// json has all that the filter lets through, ordered by name.
func (p debugPage) json(now time.Time, chosen filter) ([]byte, error) {
	list := p.fleet.List(nil)
	all := members{
		Time: now.UTC(), Role: p.role(), Sharding: p.sharing(), States: countStates(list),
		Problems: chosen.problems(p.fleet.Problems()), Members: make([]memberRow, 0, len(list)),
	}
	if chosen.Member != "" {
		one, err := p.member(chosen.Member)
		if err != nil {
			return nil, err
		}
		all.Members = append(all.Members, one)
		return json.MarshalIndent(all, "", "  ")
	}
	for _, status := range chosen.members(list) {
		all.Members = append(all.Members, memberRow{Status: status, Queues: p.fleet.Queues(status.Name)})
	}
	return json.MarshalIndent(all, "", "  ")
}

// html has the worst of it first, and no more than a browser shows well.
func (p debugPage) html(now time.Time, chosen filter) ([]byte, error) {
	if chosen.Member != "" {
		one, err := p.member(chosen.Member)
		if err != nil {
			return nil, err
		}
		return sheet{Time: now.UTC(), Role: p.role(), Sharding: p.sharing(), memberRow: one}.render()
	}
	t := newTable(p.fleet.List(nil), p.fleet.Problems(), chosen)
	t.Time, t.Role, t.Sharding = now.UTC(), p.role(), p.sharing()
	for i, row := range t.Rows {
		t.Rows[i].Queues = busy(p.fleet.Queues(row.Name))
	}
	return t.render()
}

func (t table) render() ([]byte, error) { return render("fleet", t) }

func render(name string, data any) ([]byte, error) {
	var page bytes.Buffer
	err := debugTemplates.ExecuteTemplate(&page, name, data)
	return page.Bytes(), err
}
