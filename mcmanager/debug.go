package mcmanager

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
)

// debugPath is where the metrics server shows the members.
const debugPath = "/debug/fleet"

// debugPage shows every member with its state, and what keeps providers from discovering: as a table for people, or as JSON
// for those that accept it, or ask for it with ?format=json. It has what status, labels and queues say, and no credentials.
// It is safe for concurrent use.
type debugPage struct{ fleet *fleet.Fleet }

// showMembers adds the page to the metrics server, behind the same filter as the metrics, if there is a server.
func (m *mcManager) showMembers(metricsAddress string) error {
	if metricsAddress == "0" { // there is none
		return nil
	}
	if err := m.AddMetricsServerExtraHandler(debugPath, debugPage{m.fleet}); err != nil {
		return fmt.Errorf("showing the members at %s of the metrics server: %w", debugPath, err)
	}
	return nil
}

// members is what the page shows.
type members struct {
	Time     time.Time           `json:"time"`
	States   map[fleet.State]int `json:"states"`
	Problems []fleet.Problem     `json:"problems"`
	Members  []memberRow         `json:"members"`
}

type memberRow struct {
	fleet.Status
	// Queues has the figures of the member by controller.
	Queues map[string]mcqueue.Stats `json:"queues,omitempty"`
}

//go:embed debug.html
var debugHTML string

var debugTemplate = template.Must(template.New("fleet").Funcs(template.FuncMap{
	"time": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ago":  func(now, t time.Time) string { return now.Sub(t).Truncate(time.Second).String() },
}).Parse(debugHTML))

// ServeHTTP implements http.Handler.
func (p debugPage) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the fleet can only be read", http.StatusMethodNotAllowed)
		return
	}
	render, contentType := renderHTML, "text/html; charset=utf-8"
	if wantsJSON(req) {
		render, contentType = renderJSON, "application/json"
	}
	page, err := render(p.read(time.Now()))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	_, _ = w.Write(page) // a reader that has gone need not know
}

func wantsJSON(req *http.Request) bool {
	return req.URL.Query().Get("format") == "json" || strings.Contains(req.Header.Get("Accept"), "application/json")
}

func (p debugPage) read(now time.Time) members {
	list := p.fleet.List(nil)
	all := members{
		Time: now.UTC(), States: map[fleet.State]int{}, Problems: p.fleet.Problems(), Members: make([]memberRow, 0, len(list)),
	}
	for _, status := range list {
		all.States[status.State]++
		all.Members = append(all.Members, memberRow{Status: status, Queues: p.fleet.Queues(status.Name)})
	}
	return all
}

func renderHTML(m members) ([]byte, error) {
	var page bytes.Buffer
	err := debugTemplate.Execute(&page, m)
	return page.Bytes(), err
}

func renderJSON(m members) ([]byte, error) { return json.MarshalIndent(m, "", "  ") }
