package command_test

import (
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// troubled is what stands before the hub.
type troubled struct {
	hub http.Handler
	// fails chooses requests that are not answered. It may be nil.
	fails func(*http.Request) bool
	// read is called once the ClusterAccess was read, and before that is told. away is called when it is read after it was deleted, and that
	// fails. Each is called once.
	read, away            func()
	hasRead, deleted, was atomic.Bool
}

// ServeHTTP implements [http.Handler].
func (h *troubled) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	is := strings.HasSuffix(req.URL.Path, "/clusteraccesses/east")
	switch {
	case h.fails != nil && h.fails(req):
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case is && req.Method == http.MethodDelete:
		h.deleted.Store(true)
	case is && req.Method == http.MethodGet && h.deleted.Load() && h.was.CompareAndSwap(false, true):
		h.away()
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	answer := httptest.NewRecorder()
	h.hub.ServeHTTP(answer, req)
	if h.read != nil && is && req.Method == http.MethodGet && h.hasRead.CompareAndSwap(false, true) {
		h.read()
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// addTroubled adds the context troubled, of the hub behind a handler.
func (s *stage) addTroubled(t *testing.T, h *troubled) {
	t.Helper()
	h.hub = forwardTo(t, s.Local)
	s.addServer(t, "troubled", h)
}

// addFront adds a context of a cluster behind what may answer in its place.
func (s *stage) addFront(t *testing.T, name string, cp *mctest.ControlPlane, answers func(http.ResponseWriter, *http.Request) bool) {
	t.Helper()
	behind := forwardTo(t, cp)
	s.addServer(t, name, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !answers(w, req) {
			behind.ServeHTTP(w, req)
		}
	}))
}

// forwardTo returns what forwards requests to a cluster, as its administrator.
func forwardTo(t *testing.T, cp *mctest.ControlPlane) http.Handler {
	t.Helper()
	at, err := url.Parse(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	if proxy.Transport, err = rest.TransportFor(cp.Config()); err != nil {
		t.Fatal(err)
	}
	return proxy
}

// addServer adds a context of a server.
func (s *stage) addServer(t *testing.T, name string, h http.Handler) {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	all, err := clientcmd.LoadFromFile(s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	all.Clusters[name] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}
	all.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	if err := clientcmd.WriteToFile(*all, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
}

func TestLeaveGoesOnThroughWritesOfOthersAndErrorsOfTheHub(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"where nothing is said of dependents": nil,
		"where what is said changes nothing":  {"--dependents", "prune"},
		"where what is said changes it":       {"--dependents", "keep"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			// finalizers writes those of the access. The one of others keeps it until then.
			finalizers := func(these ...string) {
				t.Helper()
				a := s.access(t)
				a.Finalizers = these
				if err := s.Local.Client().Update(t.Context(), a); err != nil {
					t.Error(err)
				}
			}
			finalizers("example.com/hold", objects.LeaveFinalizer)
			h := &troubled{
				read: func() {
					a := s.access(t)
					a.Status.Subject = "somebody"
					a.Status.RenewTime = metav1.Now()
					if err := s.Local.Client().Status().Update(t.Context(), a); err != nil {
						t.Error(err)
					}
				},
				away: func() { finalizers() },
			}
			s.addTroubled(t, h)
			r := s.run(t, append([]string{"leave", "east", "--context", "troubled", "--member-context", "member", "--timeout", "1m"}, args...)...)
			if r.code != 0 || !strings.Contains(r.errOut, "ClusterAccess default/east: gone\n") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestLeaveChangesNothingWhereTheHubDoesNotTellWhatIsOfTheMember(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"in which namespaces it has joined":   "/clusteraccesses",
		"which programs keep webhooks for it": "/secrets",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			if r := s.join(t); r.code != 0 {
				t.Fatalf("join: %+v", r)
			}
			s.create(t, newWebhooks("limits", "limits", s.addProgram(t), "east"))
			s.addTroubled(t, &troubled{fails: func(req *http.Request) bool {
				return strings.HasSuffix(req.URL.Path, path) && req.URL.Query().Has("fieldSelector")
			}})
			for _, force := range []string{"--force=false", "--force"} {
				s.changesNothing(t, "nothing was changed, since the hub", "leave", "east", "--context", "troubled", "--member-context", "member", force)
			}
		})
	}
}

func TestLeaveSaysThatTheMemberIsCleanWhereTheHubFailsAfterThat(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	// Another configuration is written once the first is deleted, of which the hub does not tell.
	s.create(t, newWebhooks("limits", "limits", s.addProgram(t), "east"))
	var asked atomic.Int32
	s.addTroubled(t, &troubled{away: func() {}, fails: func(req *http.Request) bool {
		is := strings.HasSuffix(req.URL.Path, "/secrets") && req.URL.Query().Has("fieldSelector")
		if is && asked.Add(1) == 1 {
			s.create(t, newWebhooks("meanwhile", "limits", "id-of-limits", "east"))
		}
		return is && asked.Load() > 1
	}})
	r := s.run(t, "leave", "east", "--context", "troubled", "--member-context", "member")
	if r.code != 1 || strings.Contains(r.errOut, "in the member stays") || !strings.Contains(r.errOut, "all that mcctl join has made in the member is deleted") ||
		!strings.Contains(r.errOut, "kubectl get validatingwebhookconfigurations") {
		t.Errorf("%+v", r)
	}
	if left := s.madeByMcctl(t); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}
