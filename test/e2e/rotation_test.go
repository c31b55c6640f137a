package e2e

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestNewCredentialsAreTakenOverInPlace is G4: the engagement goes on, nothing is listed again, and no change is lost.
func TestNewCredentialsAreTakenOverInPlace(t *testing.T) {
	t.Parallel()
	type user struct {
		name string
		cfg  *rest.Config
	}
	cases := map[string]func(t *testing.T, cp *mctest.ControlPlane, ns string) (from, to user){
		"Certificate": func(t *testing.T, cp *mctest.ControlPlane, _ string) (from, to user) {
			t.Helper()
			return user{"old", cp.AddUser(t, "old", configMapReader)}, user{"new", cp.AddUser(t, "new", configMapReader)}
		},
		"Token": func(t *testing.T, cp *mctest.ControlPlane, ns string) (from, to user) {
			t.Helper()
			old, _ := withToken(t, cp, ns, "old")
			renewed, _ := withToken(t, cp, ns, "new")
			account := "system:serviceaccount:" + ns + ":"
			return user{account + "old", old}, user{account + "new", renewed}
		},
		"CertificateToToken": func(t *testing.T, cp *mctest.ControlPlane, ns string) (from, to user) {
			t.Helper()
			renewed, _ := withToken(t, cp, ns, "new")
			return user{"old", cp.AddUser(t, "old", configMapReader)}, user{"system:serviceaccount:" + ns + ":new", renewed}
		},
	}
	for name, users := range cases {
		t.Run(name, func(t *testing.T) {
			f := pool.Start(t, mctest.Options{Clusters: 1})
			ns := inAll(t, f)
			cp := f.Members[0]
			from, to := users(t, cp, ns)
			atFirst := lists(t, cp)
			m, seen := newSecretsManager(t, f.Local)
			secret := m.join("m", from.cfg)
			m.start()
			m.is("m", fleet.Ready)
			seen.mustAgree(t, "m", cp, ns)
			before, outages := m.attached(), m.outages()
			listed := listsMoreThan(t, cp, atFirst)
			writes := startLoad(t, cp, ns, 50)
			writes.reaches(t, 100)
			for _, next := range []user{to, from, to} {
				m.rejoin(secret, next.cfg)
				eventually(t, "the member is reached as "+next.name, func() bool { return m.who() == next.name })
				writes.reaches(t, 100)
			}
			writes.end(t)
			seen.mustAgree(t, "m", cp, ns)
			if m.attached() != before {
				t.Error("the member was engaged anew")
			}
			m.listsNoMoreThan(cp, listed, outages()) // mustAgree lists in one namespace, and is not counted
		})
	}
}

// TestTheSameKubeconfigAgainChangesNothing: neither the engagement, nor is anything listed.
func TestTheSameKubeconfigAgainChangesNothing(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	atFirst := lists(t, cp)
	m, seen := newSecretsManager(t, f.Local)
	secret := m.join("m", cp.Config())
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before, outages := m.attached(), m.outages()
	listed := listsMoreThan(t, cp, atFirst)
	for i := range 10 {
		m.rejoin(secret, cp.Config())
		m.relabel(secret, strconv.Itoa(i))
	}
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	if m.attached() != before {
		t.Error("the member was engaged anew")
	}
	m.listsNoMoreThan(cp, listed, outages())
}

// listMetric has the series of the API server that count lists of the ConfigMaps of all namespaces. An informer either
// lists, or has its watch begin with the list, which has a metric of its own.
var listMetric = regexp.MustCompile(`(?m)^(?:` +
	`apiserver_request_total\{[^}]*resource="configmaps",scope="cluster"[^}]*verb="LIST"[^}]*\}|` +
	`apiserver_watch_list_duration_seconds_count\{[^}]*resource="configmaps",scope="cluster"[^}]*\}) (\S+)$`)

// listsMoreThan waits until the list of the first sync is counted, which the API server does after it has answered, and
// returns how many there are then. Without it, a test that no list follows proves nothing.
func listsMoreThan(t *testing.T, cp *mctest.ControlPlane, before int) (n int) {
	t.Helper()
	eventually(t, "the list of the first sync is counted", func() bool {
		n = lists(t, cp)
		return n > before
	})
	return n
}

// listsNoMoreThan checks that nothing was listed since a number of lists, but for once after each time in which the member could not
// be reached, as on a busy machine: a watch that has ended with such an error begins with a list.
func (m *manager) listsNoMoreThan(cp *mctest.ControlPlane, listed, outages int) {
	m.t.Helper()
	if n := lists(m.t, cp) - listed; n > outages {
		m.t.Errorf("%d lists after the first, and %d outages", n, outages)
	}
}

// outages counts from now on how often the member "m" became Ready again, until the function is called that it returns.
func (m *manager) outages() (counted func() int) {
	m.t.Helper()
	since, n := m.status("m").Since, 0
	ctx, stop := context.WithCancel(m.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for change := range m.GetFleet().Changes(ctx) {
			if s := change.Status; s.Name == "m" && s.State == fleet.Ready && s.Since.After(since) {
				since, n = s.Since, n+1
			}
		}
	}()
	return func() int {
		stop()
		<-ended
		return n
	}
}

// lists returns how often the ConfigMaps of all namespaces were listed.
func lists(t *testing.T, cp *mctest.ControlPlane) int {
	t.Helper()
	clients, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	body, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, match := range listMetric.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			t.Fatal(fmt.Errorf("reading a metric: %w", err))
		}
		total += n
	}
	return int(total)
}
