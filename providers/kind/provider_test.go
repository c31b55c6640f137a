package kind_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kind"
)

// running is a fleet to which a provider reports.
type running struct {
	*fleet.Fleet
	t *testing.T
}

// start runs a fleet and the provider until the test ends.
func start(t *testing.T, p kind.Provider) running {
	t.Helper()
	f := fleet.New(fleet.Options{Logger: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, nil, p) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return running{f, t}
}

// becomes waits until the member is as is says, and returns its status.
func (r running) becomes(name fleet.ClusterName, is func(s fleet.Status, known bool) bool) fleet.Status {
	r.t.Helper()
	var s fleet.Status
	var known bool
	// Changes does not tell of a member that had gone before.
	err := wait.PollUntilContextTimeout(r.t.Context(), often, patience, true, func(context.Context) (bool, error) {
		s, known = r.Status(name)
		return is(s, known), nil
	})
	if err != nil {
		r.t.Fatalf("after %v, the member %q is %+v (known: %t)", patience, name, s, known)
	}
	return s
}

func ready(s fleet.Status, _ bool) bool { return s.State == fleet.Ready && s.Reason == "" }

func withReason(reason string) func(fleet.Status, bool) bool {
	return func(s fleet.Status, _ bool) bool { return s.Reason == reason }
}

// mustLeadTo fails the test unless the member is the cluster.
func (r running) mustLeadTo(name fleet.ClusterName, cp *mctest.ControlPlane) {
	r.t.Helper()
	marker := cp.CreateNamespace(r.t)
	e, err := r.Engagement(name)
	must(r.t, err)
	if err := e.Cluster().GetAPIReader().Get(r.t.Context(), client.ObjectKey{Name: marker}, &corev1.Namespace{}); err != nil {
		r.t.Errorf("the member %q leads elsewhere: %v", name, err)
	}
}

// TestClustersOfEachEngineAreReached: by kind's library, with a program that stands in for that of the engine, and real
// API servers.
func TestClustersOfEachEngineAreReached(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	for _, program := range []string{"docker", "podman", "nerdctl", "finch"} {
		t.Run(program, func(t *testing.T) {
			engine := install(t, program)
			engine.create(t, "one", f.Local.Config())
			r := start(t, kind.Provider{Interval: often})
			r.becomes("one", ready)
			r.mustLeadTo("one", f.Local)

			engine.create(t, "two", f.Members[0].Config())
			r.becomes("two", ready)
			r.mustLeadTo("two", f.Members[0])
			engine.remove(t, "one")
			r.becomes("one", func(_ fleet.Status, known bool) bool { return !known })
		})
	}
}

// TestTheEnginesAreThoseOfTheKindCommand: docker comes before podman, unless the environment says otherwise.
func TestTheEnginesAreThoseOfTheKindCommand(t *testing.T) {
	for choice, want := range map[string]string{"": "docker", "docker": "docker", "podman": "podman", "nerdctl": "nerdctl", "unheard-of": "docker"} {
		t.Run("choice "+choice, func(t *testing.T) {
			engine := install(t, "docker", "nerdctl", "podman")
			t.Setenv("KIND_EXPERIMENTAL_PROVIDER", choice)
			start(t, kind.Provider{Clusters: []string{"none"}, Interval: time.Hour}).becomes("none", withReason(kind.ReasonNoCluster))
			calls, err := os.ReadFile(filepath.Join(engine.state, ".calls"))
			must(t, err)
			if !strings.Contains(string(calls), want+" ps -a") || strings.Count(string(calls), " ps -a") != 1 {
				t.Errorf("what ran is\n%swant %s to be asked for clusters", calls, want)
			}
		})
	}
}

// TestWhatIsWrongShowsInTheState: what kind's library says, with what stands in for an engine, or without one.
func TestWhatIsWrongShowsInTheState(t *testing.T) {
	const secret = "S3CR3T"
	for name, tc := range map[string]struct {
		programs []string
		prepare  func(t *testing.T, e fakeEngine)
		reason   string
		message  []string
	}{
		"no engine": {
			reason: kind.ReasonNoEngine, message: []string{"there is no container engine", "PATH"},
		},
		"an engine whose daemon does not run": {
			programs: []string{"docker"}, prepare: func(t *testing.T, e fakeEngine) { t.Helper(); e.stop(t) },
			reason: kind.ReasonNoEngine, message: []string{"docker ps -a", "Cannot connect to the daemon of docker."},
		},
		"no such cluster": {
			programs: []string{"podman"}, reason: kind.ReasonNoCluster, message: []string{`no kind cluster "m"`},
		},
		"a cluster that is being created": {
			programs: []string{"nerdctl"}, prepare: func(t *testing.T, e fakeEngine) { t.Helper(); e.put(t, "m", "port", nil) },
			reason: kind.ReasonNoKubeconfig, message: []string{`cluster "m"`, "being created", "nerdctl exec"},
		},
		"a node that stops while its kubeconfig is read": {
			programs: []string{"podman"},
			prepare: func(t *testing.T, e fakeEngine) {
				t.Helper()
				e.put(t, "m", "cut", nil)
				e.put(t, "m", "admin.conf", []byte("token: "+secret))
			},
			reason: kind.ReasonNoKubeconfig, message: []string{`cluster "m"`, "podman exec"},
		},
		"a kubeconfig that kind cannot read": {
			programs: []string{"docker"},
			prepare: func(t *testing.T, e fakeEngine) {
				t.Helper()
				e.put(t, "m", "admin.conf", []byte("users: "+secret))
				e.put(t, "m", "port", []byte("1\n"))
			},
			reason: kind.ReasonNoKubeconfig, message: []string{`cluster "m"`},
		},
		"a kubeconfig that is refused": {
			programs: []string{"docker"},
			prepare: func(t *testing.T, e fakeEngine) {
				t.Helper()
				e.put(t, "m", "admin.conf", []byte("clusters: [{name: k, cluster: {server: x}}]\n"+
					"contexts: [{name: k, context: {cluster: k, user: k}}]\nusers: [{name: k, user: {exec: {command: "+secret+"}}}]"))
				e.put(t, "m", "port", []byte("1\n"))
			},
			reason: "RefusedKubeconfig", message: []string{"exec"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			engine := install(t, tc.programs...)
			if tc.prepare != nil {
				tc.prepare(t, engine)
			}
			s := start(t, kind.Provider{Clusters: []string{"m"}, Interval: often}).becomes("m", withReason(tc.reason))
			for _, part := range tc.message {
				if !strings.Contains(s.Message, part) {
					t.Errorf("the message does not tell %q: %s", part, s.Message)
				}
			}
			if strings.Contains(s.Message, secret) {
				t.Errorf("the message tells a secret: %s", s.Message)
			}
		})
	}
}

func TestPatternsThatCannotBeParsedAreRefused(t *testing.T) {
	err := kind.Provider{Clusters: []string{"a", "[a"}}.Run(t.Context(), nil, nil)
	if err == nil || !strings.Contains(err.Error(), `"[a"`) {
		t.Errorf("got error %v, want one that tells the pattern", err)
	}
}
