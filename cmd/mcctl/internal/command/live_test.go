package command_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// node is the part of a kubelet that forwards ports, to ports of this machine.
type node struct {
	t *testing.T
}

func (n *node) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if _, err := httpstream.Handshake(req, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		n.t.Errorf("a port is asked for otherwise: %v", err)
		return
	}
	streams := make(chan httpstream.Stream, 2)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	problems := <-streams
	data := <-streams
	if problems.Headers().Get(corev1.StreamType) != corev1.StreamTypeError {
		problems, data = data, problems
	}
	n.carry(data, problems)
	select { // to close it takes back what was not read yet
	case <-conn.CloseChan():
	case <-n.t.Context().Done():
	}
}

// carry connects a stream with the port that it asks for, until either ends.
func (n *node) carry(data, problems httpstream.Stream) {
	port := data.Headers().Get(corev1.PortHeader)
	to, err := (&net.Dialer{}).DialContext(n.t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		_, _ = io.WriteString(problems, "nothing listens at "+port)
		_ = problems.Close()
		_ = data.Close()
		return
	}
	_ = problems.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(data, to)
		_ = data.Close()
	}()
	_, _ = io.Copy(to, data)
	_ = to.Close()
	<-done
}

// addNode adds a node to the hub that forwards ports, and the Pod of the manager of these tests, whose metrics have a port.
func (s *stage) addNode(t *testing.T, port int) {
	t.Helper()
	kubelet := httptest.NewTLSServer(&node{t: t})
	t.Cleanup(kubelet.Close)
	obj := &corev1.Node{ObjectMeta: named("node")}
	if err := s.Local.Client().Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	obj.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	obj.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(kubelet.Listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a TCP listener
	if err := s.Local.Client().Status().Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	s.addPod(t, port)
}

func (s *stage) addPod(t *testing.T, port int) {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: named(name)}
	pod.Namespace = "default"
	pod.Spec.NodeName = "node"
	pod.Spec.Containers = []corev1.Container{{
		Name: "manager", Image: "manager", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: int32(port)}},
	}}
	if err := client.IgnoreNotFound(s.Local.Client().Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	if err := s.Local.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if err := s.Local.Client().Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

// freePort returns a port that nothing listens at.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener
}

// onlyReader lets those read the metrics that show a token of the service account reader.
func (s *stage) onlyReader(*rest.Config, *http.Client) (server.Filter, error) {
	return func(_ logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			review := &authenticationv1.TokenReview{}
			review.Spec.Token, _ = strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
			if review.Spec.Token == "" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			if err := s.Local.Client().Create(context.WithoutCancel(req.Context()), review); err != nil || review.Status.User.Username != "system:serviceaccount:default:reader" {
				http.Error(w, "not for you", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, req)
		}), nil
	}, nil
}

func TestDescribeAsksTheManagerThatWorksOnAMember(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	port := freePort(t)
	s.startManager(t, server.Options{BindAddress: "127.0.0.1:" + strconv.Itoa(port), SecureServing: true, FilterProvider: s.onlyReader})
	if r := s.join(t, "--wait", "2m"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	live := func(args ...string) result {
		t.Helper()
		return s.run(t, append([]string{"describe", "east", "--live"}, args...)...)
	}
	refused := func(t *testing.T, r result, says string) {
		t.Helper()
		if r.code != 1 || !strings.Contains(r.errOut, "was not asked") || !strings.Contains(r.errOut, says) || !strings.Contains(r.out, "State:") {
			t.Errorf("%+v; want the exit code 1, what is known otherwise, and %q", r, says)
		}
	}
	refused(t, live(), "is no Pod in the namespace default")
	s.addNode(t, port)
	for _, name := range []string{"reader", "stranger"} {
		account := &corev1.ServiceAccount{ObjectMeta: named(name)}
		account.Namespace = "default"
		if err := s.Local.Client().Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("as nobody", func(t *testing.T) { refused(t, live(), "--live-account") })
	t.Run("as one that may not", func(t *testing.T) {
		refused(t, live("--live-account", "default/stranger"), "needs the right to get /debug/fleet")
	})
	t.Run("as one that is not there", func(t *testing.T) {
		refused(t, live("--live-account", "default/nobody"), "make a token of the service account default/nobody")
	})
	t.Run("as one that may", func(t *testing.T) {
		r := live("--live-account", "default/reader")
		if r.code != 0 || !strings.Contains(r.out, "Queue:") || !strings.Contains(r.out, "Running:") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("by a caller without the right to forward ports", func(t *testing.T) {
		s.addUser(t, s.Local, "onlooker", rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
		refused(t, live("--user", "local-onlooker"), "pods/portforward")
	})
	t.Run("a port that nothing listens at", func(t *testing.T) {
		s.addPod(t, freePort(t))
		refused(t, live(), "the node says: nothing listens")
	})
	t.Run("a port without TLS, which is shown no token", func(t *testing.T) {
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") != "" {
				t.Error("a token is sent")
			}
			_, _ = io.WriteString(w, `{"members": [{"queues": {"foos": {"depth": 3, "inFlight": 1}}, "running": {"foos": [{"request": "east/\u001b[2J"}]}}]}`)
		}))
		defer plain.Close()
		s.addPod(t, plain.Listener.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // a TCP listener
		r := live("--live-account", "default/reader")
		if r.code != 0 || !strings.Contains(r.out, "foos: 3 wait, 1 run") || strings.Contains(r.out, "\x1b") {
			t.Errorf("%+v", r)
		}
	})
}

func TestDescribeAsksTheReplicaThatOwnsAMember(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	port := freePort(t)
	s.startManager(t, server.Options{BindAddress: "127.0.0.1:" + strconv.Itoa(port)},
		mcmanager.Sharded(sharding.Options{ID: "mcctl", Namespace: "default", Name: "replica"}))
	s.addNode(t, port)
	if r := s.join(t, "--wait", "2m"); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	if r := s.run(t, "describe", "east", "--live"); r.code != 0 || !strings.Contains(r.out, "Queue") {
		t.Errorf("%+v", r)
	}
}

func TestAnAccountForALiveDescriptionIsNamedWhole(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--live", "--live-account", "reader"},
		{"--live", "--live-account", "/reader"},
		{"--live", "--live-account", "fleet/"},
		{"--live", "--live-account", "a/b/c"},
		{"--live-account", "fleet/reader"},
	} {
		if r := run(t.Context(), append([]string{"describe", "east"}, args...)...); r.code != 2 || !strings.Contains(r.errOut, "NAMESPACE/NAME") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
