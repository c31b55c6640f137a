package dependents_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// lookout counts the watches of a resource that are open on a way to a member.
type lookout struct {
	resource    string
	open, begun *atomic.Int32
	through     http.RoundTripper
}

// watchedBy returns the config of a cluster with a lookout for ConfigMaps on the way.
func watchedBy(cp *mctest.ControlPlane) (*rest.Config, *lookout) {
	return lookingOut(cp.Config(), "configmaps")
}

// lookingOut returns the config with the lookout on the way.
func lookingOut(cfg *rest.Config, resource string) (*rest.Config, *lookout) {
	all := &lookout{resource: resource, open: &atomic.Int32{}, begun: &atomic.Int32{}}
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper {
		return &lookout{resource, all.open, all.begun, through}
	})
	return cfg, all
}

// RoundTrip implements http.RoundTripper.
func (l *lookout) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.through.RoundTrip(req)
	if err == nil && req.URL.Query().Has("watch") && strings.HasSuffix(req.URL.Path, "/"+l.resource) {
		l.begun.Add(1)
		l.open.Add(1)
		resp.Body = &closing{resp.Body, sync.OnceFunc(func() { l.open.Add(-1) })}
	}
	return resp, err
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (l *lookout) WrappedRoundTripper() http.RoundTripper { return l.through }

type closing struct {
	io.ReadCloser
	closed func()
}

// Close implements io.Closer.
func (c *closing) Close() error {
	defer c.closed()
	return c.ReadCloser.Close()
}

// TestAKindIsWatchedWhileSomethingIsDesiredOrFound: after that the member's cache drops it, unless a controller of the user
// watches it too, which keeps its events. When something is desired again, it is watched again.
func TestAKindIsWatchedWhileSomethingIsDesiredOrFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	w.Members = nil // reported below
	var seen sync.Map
	p := w.runWith(func(mgr mcmanager.Manager) error {
		err := mcbuilder.ControllerManagedBy(mgr).Named("of-the-user").For(&corev1.ConfigMap{}, mcbuilder.InMembers(named(one.Name))).
			Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
				seen.Store(req.Name, true)
				return reconcile.Result{}, nil
			}))
		if err != nil {
			return err
		}
		r := w.spread()
		dependents.Hasten(r, time.Second)
		return r.SetupWithManager(mgr)
	})
	cfgOne, atOne := watchedBy(one)
	cfgTwo, atTwo := watchedBy(two)
	for cp, cfg := range map[*mctest.ControlPlane]*rest.Config{one: cfgOne, two: cfgTwo} {
		m := p.member(cp)
		m.Config = p.power.feed(cfg)
		if err := p.members.Set(m); err != nil {
			t.Fatal(err)
		}
		p.is(cp, fleet.Ready)
	}
	if n := atTwo.begun.Load(); n > 0 {
		t.Errorf("%d watches before anything is desired, want none", n)
	}
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	eventually(t, "both are watched", func() bool { return atOne.open.Load() == 1 && atTwo.open.Load() == 1 })

	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	eventually(t, "the kind is not watched any more where nothing is desired", func() bool { return atTwo.open.Load() == 0 })
	w.create(one, w.owner("of-the-user"))
	eventually(t, "the user's controller has its events", func() bool { _, ok := seen.Load("of-the-user"); return ok })
	if open, begun := atOne.open.Load(), atOne.begun.Load(); open != 1 || begun != 1 {
		t.Errorf("%d watches are open where the user's controller needs one, and %d were begun; want 1 and 1", open, begun)
	}

	w.create(w.Local, w.owner("b", one.Name, two.Name))
	w.isCopied(one, "b")
	w.isCopied(two, "b")
	w.remove(two, copyOf("b"))
	w.isCopied(two, "b")
	if n := atTwo.open.Load(); n != 1 {
		t.Errorf("%d watches are open when something is desired again, want 1", n)
	}
}
