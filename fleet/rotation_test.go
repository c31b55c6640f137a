package fleet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

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
