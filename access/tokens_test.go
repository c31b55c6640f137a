package access_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
)

// touching writes a minter's Secret right before another one does.
func touching(t *testing.T, w world, a *v1alpha1.ClusterAccess) transport.WrapperFunc {
	t.Helper()
	return func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPut {
				secret := w.secret(t, a)
				secret.Data["touched"] = []byte("yes")
				accesstest.Must(t, w.hub.Client().Update(req.Context(), secret))
			}
			return rt.RoundTrip(req)
		})
	}
}

type roundTripper func(req *http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

func TestATokenOfOneMemberIsRefusedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	hub := w.client(t)
	minted, federated, other := w.mint(t), w.federate(t, 1), w.federate(t, 2)
	for _, from := range []*v1alpha1.ClusterAccess{minted, federated, other} {
		token, err := hub.Token(t.Context(), from)
		accesstest.Must(t, err)
		for _, at := range []*v1alpha1.ClusterAccess{minted, federated, other} {
			user, err := check(t, at, token, at == from)
			if at == from && (err != nil || user != token.Subject && user != accesstest.Prefix+token.Subject) {
				t.Errorf("%s takes its own token for %q, and the error is %v", at.Name, user, err)
			}
			if at != from && fleet.ReasonOf(err) != v1alpha1.ReasonTokenRefused {
				t.Errorf("%s takes the token of %s for %q, and the error is %v", at.Name, from.Name, user, err)
			}
			output.Note(fmt.Sprint(token, err))
		}
	}
}

// check asks a member for whom it takes a token. One that is its own is taken once it has read the hub's keys, in the background.
func check(t *testing.T, at *v1alpha1.ClusterAccess, token access.Token, own bool) (user string, err error) {
	t.Helper()
	_ = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		user, err = access.Check(ctx, at, token)
		return err == nil || !own, nil
	})
	return user, err
}

func TestAMemberThatCapsLifetimesMakesNoLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.members[0].RestartWith(t, "--service-account-max-token-expiration=1h")
	a := w.mint(t)
	a.Spec.Minter.ExpirationSeconds = 24 * 3600
	var made atomic.Int32
	sources := access.NewSources(w.client(t))
	source := sources.Source(a, func(access.Token) { made.Add(1) })
	for range 1000 {
		token, err := source.Token(t.Context())
		accesstest.Must(t, err)
		if life := token.Expires.Sub(token.Made); life != time.Hour {
			t.Fatalf("the token lives for %s, want the hour that is granted", life)
		}
	}
	sources.Close() // all is told then
	if made.Load() != 1 {
		t.Errorf("%d tokens were made, want 1", made.Load())
	}
}

// counted counts what is asked of a server.
type counted struct {
	lists, watches atomic.Int32
	mu             sync.Mutex
	tokens         map[string]bool
}

func (c *counted) wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/api/v1/configmaps" {
			if req.URL.Query().Has("watch") {
				c.watches.Add(1)
			} else {
				c.lists.Add(1)
			}
		}
		c.mu.Lock()
		c.tokens[req.Header.Get("Authorization")] = true
		c.mu.Unlock()
		return rt.RoundTrip(req)
	})
}

// follow runs a fleet with the member of an access until the test ends. Its tokens are those of a source.
func (w world) follow(
	t *testing.T, a *v1alpha1.ClusterAccess, wrap transport.WrapperFunc, from func(s *access.Sources, told func(access.Token)) *access.Source,
) *fleet.Fleet {
	t.Helper()
	local, err := cluster.New(w.hub.Config())
	accesstest.Must(t, err)
	sources := access.NewSources(w.client(t))
	t.Cleanup(sources.Close)
	f := fleet.New(fleet.Options{})
	provider := fleet.NewProvider("short", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		cfg, err := access.Config(a.Spec)
		accesstest.Must(t, err)
		if wrap != nil {
			cfg.Wrap(wrap) // inside, where the token is seen
		}
		m := fleet.Member{Name: "east", Config: cfg, Revision: "1"}
		source := from(sources, func(token access.Token) {
			renewed := m
			renewed.Expires = token.Expires
			_ = members.Set(renewed)
		})
		accesstest.Must(t, source.Authorize(cfg))
		accesstest.Must(t, members.Set(m))
		<-ctx.Done()
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, local, provider) }()
	t.Cleanup(func() { output.Note(f.List(nil)); cancel(); accesstest.Must(t, <-ended) })
	return f
}

func TestTwentyRenewalsListNothingAgainAndLoseNothing(t *testing.T) {
	t.Parallel()
	const renewals = 20
	w := newWorld(t, 1)
	seen := &counted{tokens: map[string]bool{}}
	a := w.mint(t)
	f := w.follow(t, a, seen.wrap, func(s *access.Sources, told func(access.Token)) *access.Source {
		return s.SourceOfManyTokens(a, 200*time.Millisecond, told)
	})
	e := awaitReady(t, f)
	informer, err := e.Cluster().GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
	accesstest.Must(t, err)
	var told sync.Map
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if m, ok := obj.(*corev1.ConfigMap); ok {
			told.Store(m.Name, true)
		}
	}})
	accesstest.Must(t, err)
	ns := w.members[0].CreateNamespace(t)
	n := 0
	for ; seen.renewed() <= renewals; n++ {
		accesstest.Must(t, w.members[0].Client().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("m", n)}}))
		accesstest.Must(t, e.Cluster().GetAPIReader().List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(ns)))
	}
	for i := range n {
		name := fmt.Sprint("m", i)
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
			_, ok := told.Load(name)
			return ok, nil
		})
		if err != nil {
			t.Fatalf("the event of %s of %d is lost", name, n)
		}
	}
	if seen.lists.Load() > 1 || seen.watches.Load() != 1 || e.Context().Err() != nil {
		t.Errorf("with %d tokens there were %d lists and %d watches, and the engagement has ended with %v",
			seen.renewed(), seen.lists.Load(), seen.watches.Load(), context.Cause(e.Context()))
	}
}

func (c *counted) renewed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.tokens)
}

// awaitReady waits until the member is engaged.
func awaitReady(t *testing.T, f *fleet.Fleet) (e *fleet.Engagement) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (ok bool, err error) {
		e, err = f.Engagement("east")
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("the member was not engaged: %+v", f.List(nil))
	}
	return e
}

// TestAHubThatIsDownForLongerThanATokenLivesHealsByItself: what there is goes on until the token expires, and then waits for the hub.
func TestAHubThatIsDownForLongerThanATokenLivesHealsByItself(t *testing.T) {
	t.Parallel()
	for name, join := range map[string]func(t *testing.T, w world) *v1alpha1.ClusterAccess{
		"minted":    func(t *testing.T, w world) *v1alpha1.ClusterAccess { t.Helper(); return w.mint(t) },
		"federated": func(t *testing.T, w world) *v1alpha1.ClusterAccess { t.Helper(); return w.federate(t, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1)
			a := join(t, w)
			f := w.follow(t, a, nil, func(s *access.Sources, told func(access.Token)) *access.Source {
				return s.SourceOfShortTokens(a, 3*time.Second, told)
			})
			e := awaitReady(t, f)
			w.hub.Stop(t)
			awaitReason(t, f, fleet.Unreachable, v1alpha1.ReasonHub)
			w.hub.Restart(t)
			awaitReason(t, f, fleet.Ready, "")
			if again := awaitReady(t, f); again != e {
				t.Error("the member was engaged anew")
			}
		})
	}
}

// TestAFederatedMemberServesWhileTheHubIsDownUntilItIsRestarted: it keeps the hub's keys in memory, and reads them again when the hub is
// back.
func TestAFederatedMemberServesWhileTheHubIsDownUntilItIsRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	a := w.federate(t, 0)
	f := w.follow(t, a, nil, func(s *access.Sources, told func(access.Token)) *access.Source { return s.Source(a, told) })
	e := awaitReady(t, f)
	w.hub.Stop(t)
	down := time.Now()
	until(t, "it was served for longer than the ten seconds for which API servers remember that a token was accepted", func() bool {
		err := e.Cluster().GetAPIReader().List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default"))
		return err == nil && time.Since(down) > 11*time.Second
	})
	w.members[0].Stop(t)
	w.members[0].Restart(t)
	until(t, "the member, which cannot read the hub's keys, takes no token", func() bool {
		s, _ := f.Status("east")
		return s.State != fleet.Ready || s.Reason != ""
	})
	w.hub.Restart(t)
	awaitReason(t, f, fleet.Ready, "")
	if again := awaitReady(t, f); again != e {
		t.Error("the member was engaged anew")
	}
}

func awaitReason(t *testing.T, f *fleet.Fleet, state fleet.State, reason string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		s, _ := f.Status("east")
		return s.State == state && s.Reason == reason, nil
	})
	if err != nil {
		t.Fatalf("the member did not become %s %s: %+v", state, reason, f.List(nil))
	}
}
