package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// trap is an internal server that should never be asked.
type trap struct {
	*httptest.Server
	mu    sync.Mutex // guards what follows
	heard []string
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	tr := &trap{}
	tr.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		tr.mu.Lock()
		tr.heard = append(tr.heard, fmt.Sprintf("%s %s %s %s", r.Method, r.URL, r.Header.Get("Authorization"), body))
		tr.mu.Unlock()
		_, _ = io.WriteString(w, "the secret of an internal host")
	}))
	t.Cleanup(tr.Close)
	return tr
}

// TestARedirectIsRefused: with a clear state, nothing is sent to where it leads, and what that has to say is not shown. A
// member that redirects later, when it is engaged, gets no further either.
func TestARedirectIsRefused(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cp := f.Members[0]
	ns := inAll(t, f)
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			target := newTrap(t)
			g := newGateway(t, newAuthority(t), cp)
			redirect := func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://user:password@"+target.Listener.Addr().String()+r.URL.Path, status)
			}
			m, _ := newWatchedManager(t, f.Local)
			g.answer(redirect)
			m.set(fleet.Member{Name: "m", Config: g.config()})
			m.start()
			m.isBecause("m", fleet.Connecting, fleet.ReasonRedirected)
			if message := m.status("m").Message; !strings.Contains(message, target.Listener.Addr().String()) ||
				strings.Contains(message, "password") || strings.Contains(message, "internal") {
				t.Errorf("the message is %q", message)
			}
			g.answer(g.serve)
			m.is("m", fleet.Ready)
			e := m.attached()
			g.answer(redirect)
			cm := &corev1.ConfigMap{}
			cm.Namespace, cm.Name = ns, "written"
			if err := e.Cluster().GetClient().Create(t.Context(), cm); err == nil {
				t.Error("a write that was redirected has succeeded")
			}
			own, err := rest.HTTPClientFor(e.Cluster().GetConfig()) // as a program makes that needs more than the cluster's client
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.server.URL+"/api", nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := own.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Error("a client of the member's config follows redirects")
			}
			target.mu.Lock()
			defer target.mu.Unlock()
			if len(target.heard) > 0 {
				t.Errorf("where the redirect leads has heard: %q", target.heard)
			}
		})
	}
}

// TestWhatIsNoAPIServerIsNotReady: a web server that has an answer for everything.
func TestWhatIsNoAPIServerIsNotReady(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{})
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<html>\x1b[31mwelcome\u202e</html>")
	}))
	t.Cleanup(page.Close)
	m, _ := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: &rest.Config{Host: page.URL}})
	m.start()
	m.isBecause("m", fleet.Connecting, fleet.ReasonError)
	if message := m.status("m").Message; strings.ContainsAny(message, "\x1b\u202e") {
		t.Errorf("the message is %q", message)
	}
}

// TestAnAnswerThatDoesNotEndTakesNoMemoryWithoutBounds: neither one to the fleet's own questions, nor one to a list or a
// watch.
func TestAnAnswerThatDoesNotEndTakesNoMemoryWithoutBounds(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cases := map[string]struct{ path, begin string }{
		"Readiness": {"/readyz", "ok"},
		"Identity":  {"/api/v1/namespaces/kube-system", `{"metadata":{"name":"`},
		"Objects":   {"/api/v1/configmaps", `{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"`},
		"Space":     {"/api/v1/configmaps", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, newAuthority(t), f.Members[0])
			filler := []byte(strings.Repeat(map[bool]string{true: " ", false: "x"}[tc.begin == ""], 64<<10))
			var ended atomic.Int64
			g.answer(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != tc.path {
					g.serve(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, err := io.WriteString(w, tc.begin)
				for err == nil {
					_, err = w.Write(filler)
				}
				ended.Add(1)
			})
			m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {}, quickHealth,
				func(o *fleet.Options) { o.MaxResponseBytes = 4 << 20 })
			m.control(newLedger())
			m.set(fleet.Member{Name: "m", Config: g.config()})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m.start()
			eventually(t, "the answer was ended, several times", func() bool { return ended.Load() > 2 })
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 256<<20 {
				t.Errorf("the heap has grown by %d MB", grown>>20)
			}
		})
	}
}

// TestCertificatesInFilesAreFollowed: those of a kubelet, which are replaced before or after they have expired, and the
// bundle of the CA.
func TestCertificatesInFilesAreFollowed(t *testing.T) {
	t.Parallel()
	f := mctest.Start(t, mctest.Options{Clusters: 1}) // not of the pool: it is made to trust another authority
	ns := inAll(t, f)
	cp := f.Members[0]
	ca := newAuthority(t)
	ca.trustedBy(t, cp)
	cp.AddUser(t, "kubelet", configMapReader) // for the rights of this name
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	issue := func(life time.Duration) (cert, key string) {
		user := ca.user(t, cp, "kubelet", life)
		return write("cert.pem", user.CertData), write("key.pem", user.KeyData)
	}
	cfg := rest.AnonymousClientConfig(cp.Config())
	cfg.CAFile = write("ca.pem", cfg.CAData)
	cfg.CAData = nil
	cfg.CertFile, cfg.KeyFile = issue(20 * time.Second) // long enough to connect and to list on a busy machine
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cfg})
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before := m.attached()
	m.becomes(fleet.Unreachable, fleet.ReasonUnauthorized)
	issue(time.Hour)
	m.becomes(fleet.Ready)
	configMap(t, cp, ns, "after")
	seen.mustAgree(t, "m", cp, ns)
	if m.attached() != before {
		t.Error("the member was engaged anew")
	}
}

// TestACAInAFileIsFollowed: the server gets a certificate of another authority, and the file has that later.
func TestACAInAFileIsFollowed(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	first, second := newAuthority(t), newAuthority(t)
	g, next := newGateway(t, first, cp), newGateway(t, second, cp)
	front := stage.NewNetwork(t, strings.TrimPrefix(g.server.URL, "https://"))
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, g.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := g.config()
	cfg.Host, cfg.CAData, cfg.CAFile = "https://"+front.Address, nil, path
	m, seen := newWatchedManager(t, f.Local)
	m.set(fleet.Member{Name: "m", Config: cfg})
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	before := m.attached()
	front.LeadTo(strings.TrimPrefix(next.server.URL, "https://"))
	m.becomes(fleet.Unreachable, fleet.ReasonCertificate)
	if err := os.WriteFile(path, next.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	m.becomes(fleet.Ready)
	configMap(t, cp, ns, "after")
	seen.mustAgree(t, "m", cp, ns)
	if m.attached() != before {
		t.Error("the member was engaged anew")
	}
}

// TestASlowServerIsNotCut: a list takes longer than many probes, which fail meanwhile, and is complete in the end.
func TestASlowServerIsNotCut(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	cp := f.Members[0]
	bigConfigMaps(t, cp, ns, 10)
	slow := newSlowProxy(t, cp, 200<<10)
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {}, func(o *fleet.Options) {
		o.Health = fleet.HealthOptions{ProbeInterval: 200 * time.Millisecond, RetryInterval: 50 * time.Millisecond, ProbeTimeout: 200 * time.Millisecond}
	})
	seen := newLedger()
	m.control(seen)
	m.set(fleet.Member{Name: "m", Config: slow.Through(cp.Config())})
	m.start()
	seen.mustAgree(t, "m", cp, ns)
}

// TestAPluginThatHangsHoldsNoMoreWithEachAttempt: as many goroutines wait for it after many attempts as after a few.
func TestAPluginThatHangsHoldsNoMoreWithEachAttempt(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	cfg := rest.AnonymousClientConfig(f.Members[0].Config())
	// It hangs until the test ends, and with it this pipe.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = w.Close(), r.Close() })
	cfg.ExecProvider = &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{"-c", fmt.Sprintf("read line </proc/%d/fd/%d", os.Getpid(), r.Fd())},
	}
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {}, func(o *fleet.Options) {
		o.ConnectTimeout, o.MaxRetryPeriod = 100*time.Millisecond, 100*time.Millisecond
	})
	m.set(fleet.Member{Name: "m", Config: cfg})
	m.start()
	attempted := func(n int) func() bool { return func() bool { return m.status("m").Attempts >= n } }
	eventually(t, "the member was tried a few times", attempted(3))
	before := waitingForPlugins(t)
	eventually(t, "the member was tried many times", attempted(20))
	if now := waitingForPlugins(t); now > before || before > 1 {
		t.Errorf("%d goroutines wait for the plugin after many attempts, %d after a few, want at most 1", now, before)
	}
}

// waitingForPlugins counts goroutines that wait for a credential plugin.
func waitingForPlugins(t *testing.T) int {
	t.Helper()
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "exec.(*Authenticator).getCreds")
}

// TestTheExpiryOfCredentialsIsShown: in the status, and for programs that read it as JSON.
func TestTheExpiryOfCredentialsIsShown(t *testing.T) {
	t.Parallel()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	m, _ := newWatchedManager(t, f.Local)
	soon := time.Now().Add(time.Hour).Round(time.Second)
	m.set(fleet.Member{Name: "m", Config: f.Members[0].Config(), Expires: soon})
	m.start()
	m.is("m", fleet.Ready)
	before := m.attached()
	later := soon.Add(time.Hour)
	m.set(fleet.Member{Name: "m", Config: f.Members[0].Config(), Expires: later})
	if got := m.status("m").Expires; !got.Equal(later) {
		t.Errorf("the credentials expire at %s, want %s", got, later)
	}
	text, err := json.Marshal(m.status("m"))
	if err != nil || !strings.Contains(string(text), `"expires":"`) {
		t.Errorf("the status in JSON is %s: %v", text, err)
	}
	if m.attached() != before {
		t.Error("the member was engaged anew")
	}
}
