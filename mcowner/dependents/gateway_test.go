package dependents_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// misleads has a gateway answer the next request of a method for an object of a cluster with a page. It returns whether it has.
func (p *process) misleads(method string, cp *mctest.ControlPlane, object string) (has func() bool) {
	var done atomic.Bool
	page := func(req *http.Request) bool {
		return req.Method == method && req.URL.Host == hostOf(cp) && strings.HasSuffix(req.URL.Path, object) && !done.Swap(true)
	}
	p.power.page.Store(&page)
	return done.Load
}

// TestAnOwnerWhoseRecordGetsAPageIsNotGivenUp: it gets its dependents, and goes once it is deleted.
func TestAnOwnerWhoseRecordGetsAPageIsNotGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.spread())
	misled := p.misleads(http.MethodPatch, w.Local, "/configmaps/a")
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	if !misled() {
		t.Error("the record was not written through the gateway")
	}
	eventually(t, "the program is at rest", p.isAtRest)
	misled = p.misleads(http.MethodPatch, w.Local, "/configmaps/a")
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	if !misled() {
		t.Error("the finalizer was not taken through the gateway")
	}
}

// TestAnOwnerThatIsReadAsAPageIsNotGone: its cluster is none of owners any more, so that no event would bring it back.
func TestAnOwnerThatIsReadAsAPageIsNotGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	r := w.fromMembers(dependents.LeaveReleased)
	dependents.Hasten(r, time.Hour) // it is not let go because it is looked at from time to time
	p, before := w.runFromMember(r)
	eventually(t, "the program is at rest", p.isAtRest)
	misled := p.misleads(http.MethodGet, one, "/configmaps/a")
	p.relabel(one, "other")
	w.hasNothing(one, "a")
	w.becomes(two, before, dependents.LeaveReleased)
	if !misled() {
		t.Error("the owner was not read through the gateway")
	}
}
