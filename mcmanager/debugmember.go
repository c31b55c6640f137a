package mcmanager

import (
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"time"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// mostRunning is how many reconciles of a controller the page of a member shows. They are the oldest.
const mostRunning = 100

var errNoMember = errors.New("is no member of the fleet")

// member returns all that is known of one member, or an error that wraps errNoMember.
func (p debugPage) member(name fleet.ClusterName) (memberRow, error) {
	status, ok := p.fleet.Status(name)
	if !ok {
		return memberRow{}, fmt.Errorf("%.100q %w", name, errNoMember)
	}
	row := memberRow{
		Status: status, Queues: p.fleet.Queues(name), History: p.fleet.History(name), Kinds: p.fleet.Kinds(name),
		Running: p.fleet.Running(name),
	}
	for controller, running := range row.Running {
		if len(running) == 0 {
			delete(row.Running, controller)
			continue
		}
		row.Running[controller], _ = first(running, mostRunning)
	}
	return row, nil
}

// sheet is what the page shows to people of one member.
type sheet struct {
	memberRow

	Time     time.Time
	Role     role
	Sharding *sharding.Status
}

// Labelled are the member's labels, ordered by name.
func (s sheet) Labelled() []label { return sorted(s.Labels) }

// MoreRunning is how many reconciles of a controller run beyond those that are shown. Queue figures are a moment older.
func (s sheet) MoreRunning(controller string, shown []mcqueue.Running) int {
	if len(shown) < mostRunning {
		return 0
	}
	return max(0, s.Queues[controller].InFlight-len(shown))
}

func (s sheet) render() ([]byte, error) { return render("member", s) }

// pageOf returns the address of a member's page, relative to the fleet's.
func pageOf(name fleet.ClusterName) template.URL {
	return template.URL("?" + url.Values{"member": {string(name)}}.Encode()) //nolint:gosec // Encode has escaped it
}
