package e2e

import (
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
			before, err := m.GetFleet().Engagement("m")
			if err != nil {
				t.Fatal(err)
			}
			listed := lists(t, cp)
			if listed == atFirst {
				t.Fatal("the list of the first sync was not counted: the test proves nothing")
			}
			writes := startLoad(t, cp, ns, 50)
			writes.reaches(t, 100)
			for _, next := range []user{to, from, to} {
				m.rejoin(secret, next.cfg)
				eventually(t, "the member is reached as "+next.name, func() bool { return m.who() == next.name })
				writes.reaches(t, 100)
			}
			writes.end(t)
			seen.mustAgree(t, "m", cp, ns)
			if after, err := m.GetFleet().Engagement("m"); err != nil || after != before {
				t.Errorf("the member was engaged anew (%v)", err)
			}
			if n := lists(t, cp) - listed; n > 0 { // mustAgree lists in one namespace, and is not counted
				t.Errorf("%d lists after the first", n)
			}
		})
	}
}

// TestTheSameKubeconfigAgainChangesNothing: neither the engagement, nor is anything listed.
func TestTheSameKubeconfigAgainChangesNothing(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	m, seen := newSecretsManager(t, f.Local)
	secret := m.join("m", cp.Config())
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before, err := m.GetFleet().Engagement("m")
	if err != nil {
		t.Fatal(err)
	}
	listed := lists(t, cp)
	for i := range 10 {
		m.rejoin(secret, cp.Config())
		m.relabel(secret, strconv.Itoa(i))
	}
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	if after, err := m.GetFleet().Engagement("m"); err != nil || after != before {
		t.Errorf("the member was engaged anew (%v)", err)
	}
	if n := lists(t, cp) - listed; n > 0 {
		t.Errorf("%d lists after the first", n)
	}
}

// listMetric has the series of the API server that count lists of the ConfigMaps of all namespaces. An informer either
// lists, or has its watch begin with the list, which has a metric of its own.
var listMetric = regexp.MustCompile(`(?m)^(?:` +
	`apiserver_request_total\{[^}]*resource="configmaps",scope="cluster"[^}]*verb="LIST"[^}]*\}|` +
	`apiserver_watch_list_duration_seconds_count\{[^}]*resource="configmaps",scope="cluster"[^}]*\}) (\S+)$`)

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
