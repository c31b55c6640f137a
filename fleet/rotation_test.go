package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// dials counts the connections that are open, and those that there ever were.
type dials struct {
	open, ever atomic.Int64
	none       chan struct{} // has a token when the last one was closed
}

// over returns cfg with connections that are counted. They lead to server in place of the host of cfg, if that is given.
func (d *dials) over(cfg *rest.Config, server string) *rest.Config {
	d.none = make(chan struct{}, 1)
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if server != "" {
			address = server
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		d.open.Add(1)
		d.ever.Add(1)
		return &dialed{Conn: conn, closed: sync.OnceFunc(func() {
			if d.open.Add(-1) == 0 {
				wake(d.none)
			}
		})}, nil
	}
	return cfg
}

type dialed struct {
	net.Conn
	closed func()
}

// Close implements net.Conn.
func (d *dialed) Close() error {
	defer d.closed()
	return d.Conn.Close()
}

// mayAsk is what a member's user needs, and no more.
var mayAsk = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}}

// until waits until what holds for member "a".
func until(t *testing.T, f *Fleet, holds func(s Status) bool) {
	t.Helper()
	for range f.Changes(t.Context()) { // the test's own time limit ends it
		if s, is := f.Status("a"); is && holds(s) {
			return
		}
	}
}

// TestNoConnectionOfOldCredentialsRemains, neither of those that were replaced nor of such as were tried and refused, also
// if they lead to another cluster.
func TestNoConnectionOfOldCredentialsRemains(t *testing.T) {
	t.Parallel()
	planes := pool.Start(t, mctest.Options{Clusters: 1})
	cp, another := planes.Local, planes.Members[0]
	first, second := cp.AddUser(t, "first", mayAsk), cp.AddUser(t, "second", mayAsk)
	refused := rest.CopyConfig(first)
	refused.CertData, refused.KeyData, refused.BearerToken = nil, nil, "wrong"
	elsewhere := another.Config()
	address := hostOf(t, elsewhere)
	elsewhere.Host = first.Host

	var lines engagedLines
	f := running(t, Options{Logger: funcr.New(lines.add, funcr.Options{})})
	describe := func(cfg *rest.Config, server string) *dials {
		t.Helper()
		d := &dials{}
		if err := f.set(Member{Name: "a", Config: d.over(cfg, server)}); err != nil {
			t.Fatal(err)
		}
		return d
	}
	old := describe(first, "")
	until(t, f, func(s Status) bool { return s.State == Ready })
	e := f.now("a").Engagement
	if now := e.Cluster().GetConfig(); !bytes.Equal(now.CertData, first.CertData) {
		t.Error("its config does not have the first credentials")
	}

	renewed := describe(second, "")
	comes(t, old.none, "the connections of the old credentials are closed")
	until(t, f, func(s Status) bool { return s.State == Ready && s.Reason == "" && s.Attempts == 0 })
	if now := e.Cluster().GetConfig(); !bytes.Equal(now.CertData, second.CertData) || f.now("a").Engagement != e {
		t.Error("its config does not have the new credentials, or it was engaged anew")
	}

	led := describe(elsewhere, address)
	comes(t, renewed.none, "the connections to the cluster of before are closed")
	until(t, f, func(s Status) bool { return s.State == Ready && s.Reason == "" && s.Identity != e.Identity() })
	next := f.now("a").Engagement
	if next == e || !bytes.Equal(next.Cluster().GetConfig().CertData, elsewhere.CertData) {
		t.Error("the other cluster is not engaged as one of its own")
	}
	if n, ever := led.open.Load(), led.ever.Load(); n >= ever {
		t.Errorf("%d of %d connections are open, want that the one is closed that was tried in place", n, ever)
	}
	lines.areFirstAttempts(t, 2)

	failed := describe(refused, "")
	until(t, f, func(s Status) bool { return s.Reason == ReasonUnauthorized })
	comes(t, failed.none, "the connections of refused credentials are closed")
	if now := next.Cluster().GetConfig(); !bytes.Equal(now.CertData, elsewhere.CertData) || next.Context().Err() != nil {
		t.Error("credentials that are refused were taken over")
	}
	if err := mayRead(t, next); err != nil {
		t.Errorf("the credentials that work are not used any more: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.members["a"].rotations; n != 1 {
		t.Errorf("credentials were taken over %d times, want once", n)
	}
}

// TestAMemberThatIsDownIsAskedAtOnceWithNewCredentials: it does not wait for its turn among the many that are down.
func TestAMemberThatIsDownIsAskedAtOnceWithNewCredentials(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{}).Local
	f := running(t, Options{})
	if err := f.set(Member{Name: "a", Config: cp.AddUser(t, "first", mayAsk)}); err != nil {
		t.Fatal(err)
	}
	until(t, f, func(s Status) bool { return s.State == Ready })
	f.outage.down.Add(1_000_000) // whose turns take hours
	f.now("a").Engagement.wire.health.lost(errors.New("lost"))
	until(t, f, func(s Status) bool { return s.State == Unreachable })

	restored := make(chan struct{})
	go func() {
		defer close(restored)
		until(t, f, func(s Status) bool { return s.State == Ready })
	}()
	if err := f.set(Member{Name: "a", Config: cp.AddUser(t, "second", mayAsk)}); err != nil {
		t.Fatal(err)
	}
	comes(t, restored, "the member is Ready")
}

// hanging is a credential plugin that gives no answer until it is released.
type hanging struct{ folder string }

// newHanging returns a plugin, and cfg with what that provides in the place of its credentials: those of cfg.
func newHanging(t *testing.T, cfg *rest.Config) (hanging, *rest.Config) {
	t.Helper()
	h := hanging{t.TempDir()}
	answer, err := json.Marshal(clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{
			ClientCertificateData: string(cfg.CertData), ClientKeyData: string(cfg.KeyData),
		},
	})
	for name, content := range map[string][]byte{"answer": answer, "hang": nil} {
		if err == nil {
			err = os.WriteFile(filepath.Join(h.folder, name), content, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.release(t) })
	cfg = rest.CopyConfig(cfg)
	cfg.CertData, cfg.KeyData = nil, nil
	cfg.ExecProvider = &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: "sh", Args: []string{"-c", `cd "$0" && echo >> runs && while [ -e hang ]; do sleep 0.05; done && cat answer`, h.folder},
	}
	return h, cfg
}

func (h hanging) release(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(h.folder, "hang")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// runs is how often the plugin was started.
func (h hanging) runs(t *testing.T) int {
	t.Helper()
	lines, err := os.ReadFile(filepath.Join(h.folder, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	return len(lines)
}

// TestWhileACredentialPluginHangsTheOldCredentialsServe: the status says that it hangs. It is not started again meanwhile,
// and once it has answered, what it provides is taken over in place.
func TestWhileACredentialPluginHangsTheOldCredentialsServe(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{}).Local
	first := cp.AddUser(t, "first", mayAsk)
	plugin, next := newHanging(t, cp.AddUser(t, "second", mayAsk))
	f := running(t, Options{ConnectTimeout: time.Second, MaxRetryPeriod: 100 * time.Millisecond})
	describe := func(cfg *rest.Config) {
		t.Helper()
		if err := f.set(Member{Name: "a", Config: cfg}); err != nil {
			t.Fatal(err)
		}
	}
	describe(first)
	until(t, f, func(s Status) bool { return s.State == Ready && s.Reason == "" })
	e := f.now("a").Engagement

	describe(next)
	until(t, f, func(s Status) bool { return s.Reason == ReasonTimeout })
	mustBecome(func() bool { // a message alone is no news
		s, _ := f.Status("a")
		return s.Attempts > 2 && strings.Contains(s.Message, "end the program if it hangs")
	})
	if s, _ := f.Status("a"); s.State != Ready || f.now("a").Engagement != e {
		t.Errorf("the member is %s, or was engaged anew", s.State)
	}
	if err := mayRead(t, e); err != nil || !bytes.Equal(e.Cluster().GetConfig().CertData, first.CertData) {
		t.Errorf("the old credentials are not used any more: %v", err)
	}
	if n := plugin.runs(t); n != 1 {
		t.Errorf("the plugin was started %d times, want once", n)
	}

	plugin.release(t)
	until(t, f, func(s Status) bool { return s.State == Ready && s.Reason == "" })
	if f.now("a").Engagement != e || e.Cluster().GetConfig().ExecProvider == nil {
		t.Error("what the plugin provides was not taken over in place")
	}
	if err := mayRead(t, e); err != nil {
		t.Errorf("with the credentials of the plugin: %v", err)
	}
}

// TestAMemberWhoseCredentialPluginHangsCanBeRemoved, while it would take the credentials over.
func TestAMemberWhoseCredentialPluginHangsCanBeRemoved(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{}).Local
	_, next := newHanging(t, cp.Config())
	f := running(t, Options{ConnectTimeout: time.Hour})
	mustSet(t, f, Member{Name: "a", Config: cp.Config()})
	until(t, f, func(s Status) bool { return s.State == Ready })
	mustSet(t, f, Member{Name: "a", Config: next})
	mustBecome(func() bool { // an attempt alone is no news
		s, _ := f.Status("a")
		return s.Attempts > 0
	})
	comes(t, f.remove("a"), "the member is removed")
}

// engagedLines are the lines of the log that say that a member was engaged.
type engagedLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *engagedLines) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(line, `"msg"="Engaged"`) {
		l.lines = append(l.lines, line)
	}
}

// areFirstAttempts fails the test unless so many engagements were logged, each of which took one attempt: one that was
// tried in place first counts once.
func (l *engagedLines) areFirstAttempts(t *testing.T, engagements int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	first := 0
	for _, line := range l.lines {
		if strings.Contains(line, `"attempts"=1 `) {
			first++
		}
	}
	if first != engagements || len(l.lines) != engagements {
		t.Errorf("want %d engagements by one attempt each: %q", engagements, l.lines)
	}
}

func hostOf(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return server.Host
}

// mayRead asks a member something over its engagement.
func mayRead(t *testing.T, e *Engagement) error {
	t.Helper()
	_, err := identifier(e.Cluster().GetConfig())(t.Context(), e.Cluster().GetHTTPClient().Transport)
	return err
}

// clusterOf is an API server of a cluster with this identity, which it does not tell if that is empty.
func clusterOf(t *testing.T, identity string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
		case identity == "":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden"}`)
		default:
			_, _ = fmt.Fprintf(w, `{"metadata":{"name":"kube-system","uid":%q}}`, identity)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestCredentialsAreTakenOverThatLeadToTheSameCluster. Where nobody knows which cluster it is, they must lead there by the same way.
func TestCredentialsAreTakenOverThatLeadToTheSameCluster(t *testing.T) {
	for name, c := range map[string]struct {
		known, answers string
		described      Member
		closed         bool // the engagement has ended meanwhile
		want           error
	}{
		"Same":                  {known: "1", answers: "1"},
		"SameByAnotherWay":      {known: "1", answers: "1", described: Member{Config: anotherWay()}},
		"Another":               {known: "1", answers: "2", want: errNotInPlace},
		"ForbiddenSince":        {known: "1", want: errNotInPlace},
		"Unknown":               {},
		"UnknownByAnotherWay":   {described: Member{Config: anotherWay()}, want: errNotInPlace},
		"ItsProviderSaysSo":     {known: "1", answers: "2", described: Member{Identity: "1"}},
		"ItsProviderSaysNotSo":  {known: "1", answers: "1", described: Member{Identity: "2"}, want: errNotInPlace},
		"TheEngagementHasEnded": {known: "1", answers: "1", closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := clusterOf(t, c.answers)
			old := &rest.Config{Host: server.URL, BearerToken: "old"}
			described := c.described
			described.Name = "a"
			if described.Config == nil {
				described.Config = &rest.Config{}
			}
			described.Config.Host, described.Config.BearerToken = server.URL, "new"
			m := newMember(New(Options{}), described)
			m.engagedAs = &Member{Name: "a", Config: old}
			e := newEngagement(t.Context(), "a")
			e.identity, e.wire = c.known, newPlainWire(t, server)
			shown := newRotatingCluster(nil, old)
			e.cluster, m.engagement = shown, e
			before := e.wire.current.Load()
			before.begin(false)
			if c.closed {
				e.wire.close()
			}
			if err := m.rotate(t.Context(), described, e); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Fatalf("rotate() = %v, want %v", err, c.want)
			}
			if took := c.want == nil && !c.closed; e.wire.current.Load() == before == took || (m.rotations == 1) != took ||
				(shown.GetConfig().BearerToken == "new") != took || (m.engagedAs.Config == described.Config) != took {
				t.Errorf("they were taken over %d times, and are %q, want that they were: %t", m.rotations, shown.GetConfig().BearerToken, took)
			}
			if !c.closed && m.attempts != 0 {
				t.Errorf("%d attempts are counted", m.attempts)
			}
			if waits := strings.HasPrefix(e.busy(), retiring{}.String()); waits != (c.want == nil && !c.closed) {
				t.Errorf("a request that is under way has its time: %t", waits)
			}
			before.end()
			e.end(errors.New("the test is over"))
			patience, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := e.drain(patience); err != nil {
				t.Error(err)
			}
			if retired := c.want == nil || c.closed; before.isRetired() != retired {
				t.Errorf("the old ones are given up: %t, want %t", !retired, retired)
			}
		})
	}
}

// anotherWay is a config that trusts another server than the one of before.
func anotherWay() *rest.Config {
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{ServerName: "another"}}
}

// TestWhatMayBeRotated: an engagement that goes on, on connections of the fleet's own, to the same address.
func TestWhatMayBeRotated(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *member, described *Member)
		want   bool
	}{
		"other credentials":                    {func(*member, *Member) {}, true},
		"no engagement":                        {func(m *member, _ *Member) { m.engagement = nil }, false},
		"it has ended":                         {func(m *member, _ *Member) { m.engagement.end(errors.New("the cache has stopped")) }, false},
		"a cluster that the provider made":     {func(m *member, _ *Member) { m.engagement.wire = nil }, false},
		"it is to be that of the provider":     {func(_ *member, d *Member) { d.Config = nil }, false},
		"another cluster answers there":        {func(m *member, _ *Member) { m.impostor = true }, false},
		"it is to be found at another address": {func(_ *member, d *Member) { d.Config.Host = "https://b" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			described := Member{Name: "a", Config: &rest.Config{Host: "https://a", BearerToken: "new"}}
			m := newMember(New(Options{}), described)
			m.engagedAs = &Member{Name: "a", Config: &rest.Config{Host: "https://a", BearerToken: "old"}}
			m.engagement = newEngagement(t.Context(), "a")
			m.engagement.wire = &wire{}
			c.change(m, &described)
			if e := m.rotatable(described); (e != nil) != c.want {
				t.Errorf("it may be rotated: %t, want %t", e != nil, c.want)
			}
		})
	}
}
