package dependents_test

import (
	"context"
	"net/http"
	"path"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// line is the way to a cluster that a provider has made: to one control plane or another, as behind an address that is moved.
type line struct {
	mu      sync.Mutex // guards what follows
	host    string
	through http.RoundTripper
	led     chan struct{}       // closed when it leads elsewhere
	after   func(*http.Request) // called once a request was answered, if it is not nil
}

// lead has the line lead to a cluster from now on. Watches end.
func (l *line) lead(t *testing.T, to *mctest.ControlPlane) {
	t.Helper()
	through, err := rest.TransportFor(to.Config())
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.led != nil {
		close(l.led)
	}
	l.host, l.through, l.led = hostOf(to), through, make(chan struct{})
}

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	host, through, led, after := l.host, l.through, l.led, l.after
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(req.Context())
	req = req.Clone(ctx)
	req.URL.Host = host
	if req.URL.Query().Has("watch") {
		go func() {
			defer cancel()
			select {
			case <-led:
			case <-ctx.Done():
			}
		}()
	} else {
		context.AfterFunc(req.Context(), cancel)
	}
	resp, err := through.RoundTrip(req)
	if after != nil {
		after(req)
	}
	return resp, err
}

// whenAnswered has a function called after each answer from now on.
func (l *line) whenAnswered(do func(*http.Request)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after = do
}

// provide brings in the first member as a cluster that the provider has made, which does not say which it is.
func (p *process) provide(to *mctest.ControlPlane) *line {
	p.t.Helper()
	l := &line{}
	l.lead(p.t, to)
	made, err := cluster.New(&rest.Config{Host: to.Config().Host, Transport: l})
	if err == nil {
		err = p.members.Set(fleet.Member{Name: "member-1", Cluster: made, Labels: map[string]string{"name": "member-1"}})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // t.Context ends before clean-up, which waits for the end
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	p.t.Cleanup(func() {
		p.stop() // it uses the cluster
		cancel()
		if err := <-ended; err != nil {
			p.t.Errorf("the cluster that the provider made has ended with an error: %v", err)
		}
	})
	p.is(to, fleet.Ready)
	return l
}

// TestACollectorAsksWhichClusterItIsThatAProviderMade: it may not have been noticed yet that another one answers there, or answered
// when the owner was asked for.
func TestACollectorAsksWhichClusterItIsThatAProviderMade(t *testing.T) {
	t.Parallel()
	const owner, identity = "not-in-the-other", metav1.NamespaceSystem
	for name, leads := range map[string]map[string]string{ // where it leads after a request, "" at first
		"AnotherOne":                       {"": "other"},
		"AnotherOneWhenTheOwnerIsAskedFor": {"": "other", owner: "one", identity: "other"},
		"AnotherOneOnceItHasSaidWhichItIs": {"": "one", identity: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testWhichClusterAnswers(t, leads)
		})
	}
}

func testWhichClusterAnswers(t *testing.T, leads map[string]string) {
	t.Helper()
	w := newWorld(t, 3)
	one, other, two := w.Members[0], w.Members[1], w.Members[2]
	w.Members, w.probeInterval = w.Members[2:], time.Hour
	p := w.collect(func(c *orphans.Collector) {
		c.OwnersIn = mcowner.Clusters{Local: true} // so that the API server is asked
		c.DependentsIn = mcowner.Clusters{Members: named(two.Name)}
	})
	l := p.provide(one)
	to := map[string]*mctest.ControlPlane{"one": one, "other": other}
	l.lead(t, to[leads[""]])
	var leading sync.Mutex // guards over
	over := false          // whatever is still being answered then
	l.whenAnswered(func(req *http.Request) {
		leading.Lock()
		defer leading.Unlock()
		if next := to[leads[path.Base(req.URL.Path)]]; next != nil && !over {
			l.lead(t, next)
		}
	})
	dependent := w.owned(two, "a", mcowner.Reference{
		Fleet: fleetName, Cluster: "member-1", ClusterUID: w.kubeSystem(one), APIVersion: "v1", Kind: "ConfigMap",
		Namespace: w.ns, Name: "not-in-the-other", UID: "1",
	})
	w.swept(two, 3)
	w.unharmed(two, dependent)
	leading.Lock()
	over = true
	l.lead(t, one)
	leading.Unlock()
	w.isGone(two, "a")
}

// TestNothingIsWrittenToAClusterThatAProviderMadeAndThatIsAnotherNow, also before that was noticed.
func TestNothingIsWrittenToAClusterThatAProviderMadeAndThatIsAnotherNow(t *testing.T) {
	t.Parallel()
	w, other := newWorldBeside(t, 1)
	one := w.Members[0]
	w.Members, w.probeInterval = nil, time.Hour
	p := w.run(w.spread())
	l := p.provide(one)
	w.create(w.Local, w.owner("deleted", one.Name))
	w.create(w.Local, w.owner("changed", one.Name))
	w.create(w.Local, w.owner("absent", one.Name))
	w.isCopied(one, "absent")
	restored := []*corev1.ConfigMap{w.restore(other, w.isCopied(one, "deleted")), w.restore(other, w.isCopied(one, "changed"))}
	l.lead(t, other)
	w.remove(w.Local, "deleted")
	w.remove(w.Local, "absent") // of which the other cluster has nothing
	w.change(w.Local, "changed", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
	w.create(w.Local, w.owner("new", one.Name))
	for _, name := range []string{"deleted", "absent", "changed", "new"} {
		w.told(w.Local, name, dependents.EventFailed, "another cluster")
	}
	for _, cm := range restored {
		if now := w.get(other, cm.Name); now == nil || now.ResourceVersion != cm.ResourceVersion {
			t.Errorf("what was restored in the other cluster was changed, or deleted: %v", now)
		}
	}
	if !holds(w.get(w.Local, "deleted")) || w.get(other, copyOf("new")) != nil {
		t.Error("an owner did not wait, or something was created in the other cluster")
	}
	l.lead(t, one)
	for _, name := range []string{"deleted", "absent"} {
		w.isGone(w.Local, name)
		w.isGone(one, copyOf(name))
	}
	eventually(t, "the change is there", func() bool { return w.mustGet(one, copyOf("changed")).Data["value"] == "2" })
	w.isCopied(one, "new")
}

// TestAnotherClusterInPlaceOfOneThatAProviderMadeTakesNothing of what owners have elsewhere.
func TestAnotherClusterInPlaceOfOneThatAProviderMadeTakesNothing(t *testing.T) {
	t.Parallel()
	for name, noticed := range map[string]bool{"BeforeItIsNoticed": false, "OnceItIsNoticed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 3)
			one, two, other := w.Members[0], w.Members[1], w.Members[2]
			w.Members = w.Members[1:2]
			says, reason := "not the cluster that the owner was in", dependents.EventFailed
			if noticed {
				says, reason = "mend them", dependents.EventConflict
			} else {
				w.probeInterval = time.Hour
			}
			r := w.spread()
			r.OwnersIn = mcowner.Clusters{Members: named("member-1")}
			r.DependentsIn = mcowner.Clusters{Members: named(two.Name)}
			p := w.run(r)
			l := p.provide(one)
			w.create(one, w.owner("a", two.Name))
			copied := w.isCopied(two, "a")
			w.create(other, w.owner("a", two.Name))
			l.lead(t, other)
			w.told(other, "a", reason, says)
			w.unharmed(two, copied)
			l.lead(t, one)
			w.change(one, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = "2" })
			eventually(t, "the copy follows again", func() bool { return w.mustGet(two, copyOf("a")).Data["value"] == "2" })
			w.unharmed(two, copied)
		})
	}
}
