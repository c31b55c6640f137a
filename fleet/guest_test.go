package fleet

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// namespaces returns how many namespaces a guest sees.
func namespaces(ctx context.Context, g *Guest) (int, error) {
	list := &corev1.NamespaceList{}
	err := g.Client().List(ctx, list)
	return len(list.Items), err
}

// mustSet reports a member without waiting for it.
func mustSet(t *testing.T, f *Fleet, m Member) {
	t.Helper()
	if err := f.set(m); err != nil {
		t.Fatal(err)
	}
}

func TestAGuestNeedsNoEngagement(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	f := running(t, Options{RefuseDuplicates: true})
	mustSet(t, f, Member{Name: "a", Config: cp.Config()})
	mustBecome(func() bool { _, err := f.Engagement("a"); return err == nil })
	mustSet(t, f, Member{Name: "twin", Config: cp.Config()})
	mustBecome(func() bool { s, _ := f.Status("twin"); return s.Reason == ReasonDuplicate })
	engagement, err := f.Engagement("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []ClusterName{"a", "twin"} {
		g, err := f.Guest(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := namespaces(t.Context(), g); n == 0 || err != nil {
			t.Errorf("a guest of %s sees %d namespaces: %v", name, n, err)
		}
		if g.Identity() == "" || g.Identity() != engagement.Identity() {
			t.Errorf("the identity of %s is %q, want %q", name, g.Identity(), engagement.Identity())
		}
	}
}

// TestAGuestHasTheOptionsOfMembersClients: a manager that writes nothing writes nothing as a guest either.
func TestAGuestHasTheOptionsOfMembersClients(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := cp.CreateNamespace(t)
	f := running(t, Options{ClusterOptions: func(Member) []cluster.Option {
		return []cluster.Option{func(o *cluster.Options) { o.Client.DryRun = new(true) }}
	}})
	mustSet(t, f, Member{Name: "a", Config: cp.Config()})
	g, err := f.Guest(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}
	if err := g.Client().Create(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client().Get(t.Context(), client.ObjectKeyFromObject(cm), cm); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("getting what was written in a dry run: %v, want that it is not found", err)
	}
}

// TestAGuestGoesWithWhatItCameFor: its context, the member, or the way to reach that.
func TestAGuestGoesWithWhatItCameFor(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	refused := rest.CopyConfig(cp.Config())
	refused.CertData, refused.KeyData, refused.BearerToken = nil, nil, "wrong"
	for name, end := range map[string]func(f *Fleet, leave context.CancelFunc){
		"Context": func(_ *Fleet, leave context.CancelFunc) { leave() },
		"Removed": func(f *Fleet, _ context.CancelFunc) { f.remove("a") },
		"OtherAddress": func(f *Fleet, _ context.CancelFunc) {
			_ = f.set(Member{Name: "a", Config: &rest.Config{Host: "https://elsewhere.test"}})
		},
		"OtherCluster": func(f *Fleet, _ context.CancelFunc) {
			_ = f.set(Member{Name: "a", Config: cp.Config(), Identity: "another"})
		},
		"OtherClusterThatRefuses": func(f *Fleet, _ context.CancelFunc) {
			_ = f.set(Member{Name: "a", Config: refused, Identity: "another"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := running(t, Options{})
			mustSet(t, f, Member{Name: "a", Config: cp.Config()})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			g, err := f.Guest(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			mustSet(t, f, Member{Name: "a", Config: cp.Config(), Labels: map[string]string{"new": "label"}})
			if n, err := namespaces(t.Context(), g); n == 0 || err != nil {
				t.Errorf("a guest sees %d namespaces: %v", n, err)
			}
			end(f, leave)
			<-g.Context().Done()
			mustBecome(func() bool { _, err := namespaces(t.Context(), g); return errors.Is(err, errClosed) })
			if cause := context.Cause(g.Context()); (name == "Context") == errors.Is(cause, ErrDisengaged) {
				t.Errorf("the cause is %v", cause)
			}
		})
	}
}

// TestAGuestTakesOverNewCredentials once they work. Until then those of before serve.
func TestAGuestTakesOverNewCredentials(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	first, second := cp.AddUser(t, "guest-before", mayAsk), cp.AddUser(t, "guest-after", mayAsk)
	refused := rest.CopyConfig(first)
	refused.CertData, refused.KeyData, refused.BearerToken = nil, nil, "wrong"
	f := running(t, Options{Ownership: newShares()})
	describe := func(cfg *rest.Config) *dials {
		d := &dials{}
		mustSet(t, f, Member{Name: "a", Config: d.over(cfg, "")})
		return d
	}
	old := describe(first)
	g, leave := mustShare(t, f, "a")
	defer leave()
	tried := describe(refused)
	comes(t, tried.none, "the connections of refused credentials are closed")
	comes(t, tried.none, "refused credentials are tried again")
	if n, err := namespaces(t.Context(), g); n == 0 || err != nil {
		t.Errorf("with the credentials of before a guest sees %d namespaces: %v", n, err)
	}
	describe(second)
	comes(t, old.none, "the connections of the old credentials are closed")
	if n, err := namespaces(t.Context(), g); n == 0 || err != nil {
		t.Errorf("a guest sees %d namespaces: %v", n, err)
	}
	if now := g.Cluster().GetConfig(); !bytes.Equal(now.CertData, second.CertData) {
		t.Error("its config does not have the new credentials")
	}
}

// TestAGuestFollowsTheCertificatesInItsFiles. A file that is not there, or cannot be used, may be about to be replaced.
func TestAGuestFollowsTheCertificatesInItsFiles(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.SetKeepAlivesEnabled(false) // a connection that is read in vain would hold up the time of the test
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ca.pem")
		write := func(content []byte) {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(ca)
		m := newMember(New(Options{}), Member{
			Name: "a", Identity: "1", Config: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: path}},
		})
		g := &Guest{identity: "1"}
		g.ctx, g.cancel = context.WithCancelCause(t.Context())
		w, err := m.newGuestWire(g, m.described.Config, m.described)
		if err != nil {
			t.Fatal(err)
		}
		m.keepGuest(g, w, m.described)
		first := w.current.Load()
		follows := func() (renewed bool) {
			<-time.After(readFilesEvery)
			synctest.Wait()
			return w.current.Load() != first
		}
		if follows() {
			t.Error("the guest has other certificates, and the file has not changed")
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if follows() || g.Context().Err() != nil {
			t.Error("the guest has other certificates, or has ended, as there is no file")
		}
		write([]byte("nonsense"))
		if follows() || g.Context().Err() != nil {
			t.Error("the guest has other certificates, or has ended, as the file has nonsense")
		}
		write(append(ca, ca...))
		if !follows() || g.Context().Err() != nil {
			t.Errorf("the file has changed, and the guest does not go on with that: %v", context.Cause(g.Context()))
		}
	})
}

func TestAGuestThatCannotComeSaysWhy(t *testing.T) {
	t.Parallel()
	f := running(t, Options{ConnectTimeout: 300 * time.Millisecond})
	mustSet(t, f, Member{Name: "broken", Err: errors.New("the kubeconfig is empty")})
	mustSet(t, f, Member{Name: "silent", Config: &rest.Config{Host: mctest.Silent(t)}})
	mustSet(t, f, Member{Name: "gone", Err: errors.New("the kubeconfig is empty")})
	<-f.remove("gone")
	for name, want := range map[ClusterName]error{
		"broken": ErrNotReady, "unknown": ErrUnknown, "gone": ErrGone, "silent": context.DeadlineExceeded,
	} {
		g, err := f.Guest(t.Context(), name)
		if g != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), string(name)) {
			t.Errorf("Guest(%s) = %v, want %v", name, err, want)
		}
	}
}

// TestAGuestOfAnotherReplicasMemberSaysWhyItCannotCome, beside whose the member is.
func TestAGuestOfAnotherReplicasMemberSaysWhyItCannotCome(t *testing.T) {
	t.Parallel()
	f := New(Options{Ownership: newShares()})
	f.HoldBy(func(name ClusterName) Hold { return Hold{Drained: name == "drained", Reason: "maintenance"} })
	t.Cleanup(runs(t, f))
	mustSet(t, f, Member{Name: "broken", Err: errors.New("the kubeconfig is empty")})
	mustSet(t, f, Member{Name: "drained", Config: &rest.Config{Host: mctest.Silent(t)}})
	for name, want := range map[ClusterName]struct{ reason, why string }{
		"broken": {ReasonInvalid, "the kubeconfig is empty"}, "drained": {ReasonDrained, "maintenance"},
	} {
		mustBecome(func() bool { s, _ := f.Status(name); return s.State == NotOwned })
		if _, err := f.Guest(t.Context(), name); !errors.Is(err, ErrNotOwned) || ReasonOf(err) != want.reason || !strings.Contains(err.Error(), want.why) {
			t.Errorf("Guest(%s) = %v, want that it says %s", name, err, want)
		}
	}
}

// TestGuestsComeAndGoByTheHundred and leave nothing.
func TestGuestsComeAndGoByTheHundred(t *testing.T) {
	cp := pool.Share(t, mctest.Options{})
	f := running(t, Options{})
	mustSet(t, f, Member{Name: "a", Config: cp.Config()})
	mustBecome(func() bool { _, err := f.Engagement("a"); return err == nil })
	before := goleak.IgnoreCurrent()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			g, err := f.Guest(ctx, "a")
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := namespaces(ctx, g); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	mustBecome(func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.members["a"].guests) == 0
	})
	mustBecome(func() bool { return goleak.Find(before) == nil })
}
