package mcmanager_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// lineLog keeps what is logged.
type lineLog struct {
	mu  sync.Mutex // guards all
	all []string
}

func (l *lineLog) logger() logr.Logger {
	return funcr.New(func(name, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, name+" "+line)
	}, funcr.Options{})
}

func (l *lineLog) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// TestMissingRightsToRecordEventsAreLoggedOnce for each cluster, by each of the recorders that there are.
func TestMissingRightsToRecordEventsAreLoggedOnce(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	log := &lineLog{}
	members := &fleettest.Provider{}
	mgr, err := mcmanager.New(f.Local.AddUser(t, "limited"), members, mcmanager.Options{
		Logger: log.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{Manager: mgr, t: t, members: members}
	s.start()
	s.join("east", f.Members[0].AddUser(t, "limited"), nil)
	s.is("east", fleet.Ready)
	east, err := mgr.GetCluster(t.Context(), "east")
	if err != nil {
		t.Fatal(err)
	}
	for _, cl := range []cluster.Cluster{mgr, east} {
		recordMany(cl, "lost")
	}
	for cl, allow := range map[cluster.Cluster]*mctest.ControlPlane{mgr: f.Local, east: f.Members[0]} {
		mayRecord := rbacv1.PolicyRule{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}
		// What was sent before is answered before: each recorder has a line of its own to wait for.
		s.eventually(func() bool { return len(log.with("Events are not recorded")) >= 2 }, func() {
			t.Fatalf("not logged:\n%s", strings.Join(log.with(""), "\n"))
		})
		allow.AddUser(t, "limited", mayRecord)
		s.eventually(func() bool {
			recordMany(cl, "kept")
			list := &corev1.EventList{}
			if err := allow.Client().List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			old, now := false, false
			for _, e := range list.Items {
				old = old || strings.HasPrefix(e.Reason, "kept-old")
				now = now || strings.HasPrefix(e.Reason, "kept-new")
			}
			return old && now
		}, func() { t.Fatal("no event is recorded although that is allowed") })
	}
	var local, member int
	for _, line := range append(log.with("vent"), klogged.with("vent")...) {
		switch {
		case strings.Contains(line, "Events are not recorded") && strings.Contains(line, `"cluster"="east"`):
			member++
		case strings.Contains(line, "Events are not recorded"):
			local++
		case strings.Contains(line, "lost") || strings.Contains(line, "vent occurred"):
			t.Errorf("an event is logged: %s", line)
		}
		if strings.Contains(line, "Events are not recorded") && (!strings.Contains(line, `"reason"="Forbidden"`) || len(line) > 400) {
			t.Errorf("the line is %s", line)
		}
	}
	if local != 1 || member != 1 {
		t.Errorf("%d lines about the local cluster and %d about the member, want one each:\n%s",
			local, member, strings.Join(log.with("Events are not"), "\n"))
	}
}

// recordMany records events by the old API and by the new one.
func recordMany(cl cluster.Cluster, reason string) {
	about := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "about", UID: "1"},
	}
	now := cl.GetEventRecorder("test")
	old := cl.GetEventRecorderFor("test") //nolint:staticcheck // cluster.Cluster has it still
	for i := range 5 {
		now.Eventf(about, nil, corev1.EventTypeNormal, fmt.Sprint(reason, "-new-", i), "Test", "note")
		old.Eventf(about, corev1.EventTypeNormal, fmt.Sprint(reason, "-old-", i), "note %d", i)
	}
}

// hanging lets no watch of the core group begin, and refuses to stream a list.
type hanging struct {
	asked   atomic.Int32
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (h *hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	switch query := req.URL.Query(); {
	case !strings.HasPrefix(req.URL.Path, "/api/v1/") || !query.Has("watch"):
		return h.through.RoundTrip(req)
	case query.Has("sendInitialEvents"):
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: req}, nil
	}
	h.asked.Add(1)
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (h *hanging) WrappedRoundTripper() http.RoundTripper { return h.through }

// TestThatTheManagerStopsIsNoErrorOfALocalWatch: one that is about to begin gets no answer any more.
func TestThatTheManagerStopsIsNoErrorOfALocalWatch(t *testing.T) {
	f := pool.Start(t, mctest.Options{})
	cfg, hangs := f.Local.Config(), &hanging{}
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { hangs.through = through; return hangs })
	log := &lineLog{}
	mgr, err := mcmanager.New(cfg, &fleettest.Provider{}, mcmanager.Options{
		Logger: log.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{Manager: mgr, t: t}
	stop := s.start()
	<-mgr.Elected()
	if _, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	s.eventually(func() bool { return hangs.asked.Load() > 0 }, func() { t.Fatal("no watch begins") })
	before := len(klogged.with("Failed to watch"))
	stop()
	if lines := append(log.with("Failed to watch"), klogged.with("Failed to watch")[before:]...); len(lines) > 0 {
		t.Errorf("it is logged that\n%s", strings.Join(lines, "\n"))
	}
}
