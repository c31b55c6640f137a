package command_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// silent is a server that accepts TLS, reads what it is asked, and never answers.
type silent struct {
	*httptest.Server

	asked chan struct{} // has a token once it was asked
}

func newSilent(t *testing.T, http2 bool) *silent {
	t.Helper()
	s := &silent{asked: make(chan struct{}, 1)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case s.asked <- struct{}{}:
		default:
		}
		<-req.Context().Done()
		panic(http.ErrAbortHandler) // which answers nothing, while to return is an answer without a body
	}))
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *silent) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// kubeconfig writes one in which the server is the hub.
func (s *silent) kubeconfig(t *testing.T) string {
	t.Helper()
	return write(t, `apiVersion: v1
kind: Config
current-context: hub
contexts: [{name: hub, context: {cluster: hub}}]
clusters: [{name: hub, cluster: {server: "`+s.URL+`", certificate-authority-data: "`+base64.StdEncoding.EncodeToString(s.authority())+`"}}]
`)
}

// isMember makes a server that of the context of the member.
func (s *stage) isMember(t *testing.T, server *silent) {
	t.Helper()
	merged, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	merged.Clusters["member"].Server, merged.Clusters["member"].CertificateAuthorityData = server.URL, server.authority()
	if err := clientcmd.WriteToFile(*merged, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// patience is how long a command may take that waits for nothing.
const patience = 20 * time.Second

// ended returns the result of a run, which is to end.
func ended(t *testing.T, runs func() result) result {
	t.Helper()
	results := make(chan result, 1)
	go func() { results <- runs() }()
	select {
	case r := <-results:
		return r
	case <-time.After(patience):
		t.Fatal("it does not end")
		return result{}
	}
}

func TestAnInterruptEndsARequestToAHubThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"list"}, {"describe", "east"}, {"shards"}, {"check", "east"}, {"token", "east"}, {"drain", "east"}, {"leave", "east", "--force"},
	} {
		for protocol, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
			t.Run(strings.Join(args, " ")+" by "+protocol, func(t *testing.T) {
				t.Parallel()
				hub := newSilent(t, http2)
				ctx, interrupt := context.WithCancelCause(t.Context())
				go func() {
					<-hub.asked
					interrupt(errors.New("interrupt signal received"))
				}()
				r := ended(t, func() result { return run(ctx, append(args, "--kubeconfig", hub.kubeconfig(t))...) })
				if r.code != 1 || !strings.Contains(r.errOut, "interrupt signal received") {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

func TestCompletionEndsWhereTheHubDoesNotAnswer(t *testing.T) {
	t.Parallel()
	hub := newSilent(t, true)
	r := ended(t, func() result {
		return run(t.Context(), "__complete", "describe", "--kubeconfig", hub.kubeconfig(t), "")
	})
	if names := completions(t, r); len(names) != 0 {
		t.Errorf("it offers %q", names)
	}
}

func TestLeaveOfAMemberThatDoesNotAnswerEnds(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	member := newSilent(t, true)
	s.isMember(t, member)
	key := client.ObjectKey{Namespace: "default", Name: "east"}

	ctx, interrupt := context.WithCancelCause(t.Context())
	go func() {
		<-member.asked
		interrupt(errors.New("interrupt signal received"))
	}()
	leave := []string{"leave", "east", "--kubeconfig", s.kubeconfig, "--member-kubeconfig", s.kubeconfig, "--member-context", "member"}
	r := ended(t, func() result { return run(ctx, append(leave, "--force")...) })
	if r.code != 1 || !strings.Contains(r.errOut, "nothing was changed: ") || !strings.Contains(r.errOut, "interrupt signal received") || r.out != "" {
		t.Errorf("interrupted: %+v", r)
	}
	if err := s.Local.Client().Get(t.Context(), key, &accessv1alpha1.ClusterAccess{}); err != nil {
		t.Errorf("after it was interrupted, the ClusterAccess: %v", err)
	}

	r = ended(t, func() result { return run(t.Context(), append(leave, "--member-request-timeout", "1s")...) })
	if r.code != 1 || !strings.Contains(r.errOut, "the hub is clean, but what mcctl join has made in the member stays") {
		t.Errorf("leave: %+v", r)
	}
	if err := s.Local.Client().Get(t.Context(), key, &accessv1alpha1.ClusterAccess{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("after it has left, the ClusterAccess: %v", err)
	}
}
