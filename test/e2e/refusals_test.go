package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// refusing has a gateway answer some requests with a status, until allow is called.
func refusing(g *gateway, code int, which func(*http.Request) bool) (allow func()) {
	g.answer(func(w http.ResponseWriter, r *http.Request) {
		if which(r) {
			refuse(w, code)
			return
		}
		g.serve(w, r)
	})
	return func() { g.answer(g.serve) }
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int) {
	reasons := map[int]metav1.StatusReason{
		http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed,
		http.StatusNotAcceptable: metav1.StatusReasonNotAcceptable, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusGone: metav1.StatusReasonExpired, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"the gateway refuses this"}`, code, reasons[code])
}

func ofSecrets(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/secrets") }

func watchOfSecrets(r *http.Request) bool { return ofSecrets(r) && r.URL.Query().Get("watch") != "" }

func ordinaryWatchOfSecrets(r *http.Request) bool {
	return watchOfSecrets(r) && r.URL.Query().Get("sendInitialEvents") == ""
}

// newGatewayMember makes a running manager with a member "m" behind a gateway.
func newGatewayMember(t *testing.T) (*manager, *gateway, cluster.Cluster) {
	t.Helper()
	f := pool.Start(t, mctest.Options{Clusters: 1})
	g := newGateway(t, newAuthority(t), f.Members[0])
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {})
	m.set(fleet.Member{Name: "m", Config: g.config()})
	m.start()
	m.is("m", fleet.Ready)
	return m, g, m.cluster()
}

func (m *manager) cluster() cluster.Cluster {
	m.t.Helper()
	cl, err := m.GetCluster(m.t.Context(), "m")
	if err != nil {
		m.t.Fatal(err)
	}
	return cl
}

// listSecrets lists from the member's cache. It is an error of its own if that takes longer than patience.
func listSecrets(t *testing.T, cl cluster.Cluster) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errHangs)
	defer cancel()
	err := cl.GetCache().List(ctx, &corev1.SecretList{})
	if ctx.Err() != nil {
		return errHangs
	}
	return err
}

var errHangs = errors.New("the read hangs")

// TestAListThatIsRefusedInAnyWayIsVisible: whatever the answer, who reads is told at once, the status says why, and both
// end when the answer is another.
func TestAListThatIsRefusedInAnyWayIsVisible(t *testing.T) {
	for _, code := range []int{
		http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusGone, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusTeapot,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			m, g, cl := newGatewayMember(t)
			allow := refusing(g, code, ofSecrets)
			if err := listSecrets(t, cl); !errors.Is(err, fleet.ErrNotReady) {
				t.Errorf("a read says %v", err)
			}
			if status := m.status("m"); status.Reason != fleet.ReasonNotSynced {
				t.Errorf("the status is %+v", status)
			}
			allow()
			eventually(t, "it is read", func() bool { return listSecrets(t, cl) == nil })
			eventually(t, "the status is clean", func() bool { return m.status("m").Reason == "" })
		})
	}
}

// TestAWatchThatIsRefusedWhileListsWorkIsVisible: what was listed is read meanwhile, and it is listed anew.
func TestAWatchThatIsRefusedWhileListsWorkIsVisible(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusGone, http.StatusServiceUnavailable} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			m, g, cl := newGatewayMember(t)
			allow := refusing(g, code, watchOfSecrets)
			eventually(t, "the status says so", func() bool {
				_ = listSecrets(t, cl)
				return m.status("m").Reason == fleet.ReasonNotSynced
			})
			if code != http.StatusServiceUnavailable { // in which case the first watch, which lists too, may work yet
				eventually(t, "what was listed is read", func() bool { return listSecrets(t, cl) == nil })
			}
			allow()
			eventually(t, "the status is clean", func() bool { return m.status("m").Reason == "" })
			if err := listSecrets(t, cl); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAWatchListThatIsRefusedIsNoFailure: the ordinary list that follows works.
func TestAWatchListThatIsRefusedIsNoFailure(t *testing.T) {
	for _, code := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			m, g, cl := newGatewayMember(t)
			refusing(g, code, func(r *http.Request) bool { return watchOfSecrets(r) && !ordinaryWatchOfSecrets(r) })
			failed := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			var following sync.WaitGroup
			following.Go(func() {
				for change := range m.GetFleet().Changes(ctx) {
					if change.Status.Reason != "" {
						t.Errorf("the status is %+v", change.Status)
						close(failed)
						return
					}
				}
			})
			if err := listSecrets(t, cl); err != nil {
				t.Error(err)
			}
			cancel()
			following.Wait()
		})
	}
}

// TestAKindThatCouldNotBeMappedOnceIsReadLater: one bad answer of discovery is not for ever.
func TestAKindThatCouldNotBeMappedOnceIsReadLater(t *testing.T) {
	_, g, cl := newGatewayMember(t)
	var asked atomic.Int32
	refusing(g, http.StatusServiceUnavailable, func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/api") && asked.Add(1) == 1
	})
	if _, err := cl.GetCache().GetInformer(t.Context(), &corev1.Secret{}); err == nil || asked.Load() == 0 {
		t.Fatal("discovery was to fail")
	}
	eventuallyWithin(t, 20*time.Second, "it is read", func() bool { return listSecrets(t, cl) == nil })
}

// TestAFieldThatIsIndexedTwiceIsRefused: and the kind is read by it all the same.
func TestAFieldThatIsIndexedTwiceIsRefused(t *testing.T) {
	m, _, cl := newGatewayMember(t)
	byName := func(obj client.Object) []string { return []string{obj.GetName()} }
	if err := m.GetFleetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "name", byName); err != nil {
		t.Fatal(err)
	}
	if err := m.GetFleetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "name", byName); err == nil {
		t.Error("the same field is indexed twice")
	}
	eventuallyWithin(t, 20*time.Second, "it is read", func() bool { return listSecrets(t, cl) == nil })
	if err := cl.GetCache().List(t.Context(), &corev1.SecretList{}, client.MatchingFields{"name": "x"}); err != nil {
		t.Error(err)
	}
}

// TestAnIndexThatIsAskedForWhileAMemberConnectsIsThere: before it is known to be ready, and while indexes are added.
func TestAnIndexThatIsAskedForWhileAMemberConnectsIsThere(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	g := newGateway(t, newAuthority(t), f.Members[0])
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {})
	index := func(obj client.Object, field string) {
		byName := func(obj client.Object) []string { return []string{obj.GetName()} }
		if err := m.GetFleetFieldIndexer().IndexField(t.Context(), obj, field, byName); err != nil {
			t.Fatal(err)
		}
	}
	index(&corev1.Secret{}, "name")
	probed, goOn := make(chan struct{}, 100), make(chan struct{})
	mapped, answer := make(chan struct{}, 100), make(chan struct{})
	g.answer(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			probed <- struct{}{}
			<-goOn
		case "/api":
			mapped <- struct{}{}
			<-answer
		}
		g.serve(w, r)
	})
	m.set(fleet.Member{Name: "m", Config: g.config()})
	m.start()
	<-probed
	index(&corev1.ConfigMap{}, "early")
	close(goOn)
	eventually(t, "a kind is asked for, or the member is ready", func() bool { return len(mapped) > 0 || m.status("m").State == fleet.Ready })
	index(&corev1.ConfigMap{}, "late")
	close(answer)
	m.is("m", fleet.Ready)
	for _, field := range []string{"early", "late"} {
		if err := m.cluster().GetCache().List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{field: "x"}); err != nil {
			t.Error(err)
		}
	}
}

// TestAListByAFieldThatNobodyIndexedSaysHowTo: in the error that a reconciler gets.
func TestAListByAFieldThatNobodyIndexedSaysHowTo(t *testing.T) {
	_, _, cl := newGatewayMember(t)
	err := cl.GetClient().List(t.Context(), &corev1.ConfigMapList{}, client.MatchingFields{"spec.of": "x"})
	for _, want := range []string{"ConfigMap", `cluster "m"`, `"spec.of"`, "GetFleetFieldIndexer().IndexField", "does not exist"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q: %v", want, err)
		}
	}
}

// TestReadersSourcesAndIndexesWhileACRDComesAndGoes: all at once, and in the end everything is read.
func TestReadersSourcesAndIndexesWhileACRDComesAndGoes(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {})
	seen := newRecord()
	for i := range 3 {
		if err := mcbuilder.ControllerManagedBy(m).For(widget()).Named(fmt.Sprint(controllerName(t), i)).Complete(seen); err != nil {
			t.Fatal(err)
		}
	}
	m.set(fleet.Member{Name: "m", Config: f.Members[0].Config()})
	m.start()
	m.is("m", fleet.Ready)
	cl := m.cluster()
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 8 {
		working.Go(func() { readWidgets(ctx, t, m, cl, i) })
	}
	for range 3 {
		installWidgets(t, f.Members[0])
		createWidget(t, f.Members[0], ns, "w")
		eventually(t, "it is read", func() bool {
			return cl.GetCache().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "w"}, widget()) == nil
		})
		uninstallWidgets(t, f.Members[0])
		eventually(t, "it is gone", func() bool {
			return cl.GetCache().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "w"}, widget()) != nil
		})
	}
	installWidgets(t, f.Members[0])
	createWidget(t, f.Members[0], ns, "last")
	stop()
	working.Wait()
	eventually(t, "the last one is reconciled", func() bool { return seen.count("m", ns, "last") > 0 })
	eventually(t, "the status is clean", func() bool { return len(m.status("m").NotSynced) == 0 })
}

// readWidgets reads, indexes and removes informers in one of several ways until ctx is done. Errors are expected, and of two kinds.
func readWidgets(ctx context.Context, t *testing.T, m *manager, cl cluster.Cluster, way int) {
	t.Helper()
	list := widgetList()
	for n := 0; ctx.Err() == nil; n++ {
		field := fmt.Sprint("field-", n%50)
		var err error
		switch way % 4 {
		case 0:
			err = cl.GetCache().List(ctx, list)
		case 1:
			_ = m.GetFleetFieldIndexer().IndexField(ctx, widget(), field, func(obj client.Object) []string { return []string{obj.GetName()} })
			err = cl.GetCache().List(ctx, list, client.MatchingFields{field: "w"})
		case 2:
			err = cl.GetCache().RemoveInformer(ctx, &corev1.Secret{})
			_ = listSecrets(t, cl)
		case 3:
			m.status("m")
			err = cl.GetCache().Get(ctx, client.ObjectKey{Namespace: "default", Name: "w"}, widget())
		}
		if client.IgnoreNotFound(err) != nil && !errors.Is(err, fleet.ErrNotReady) && ctx.Err() == nil {
			t.Errorf("way %d: %v", way, err)
			return
		}
	}
}

// TestARequestThatNeedsAKindRunsSoonAfterItWorks is about a reconciler that reads what cannot be listed yet. A request is tried
// again every five seconds or more in any case, so what runs sooner was woken. It is by chance when that is, so the kind
// becomes readable in one member after the other.
func TestARequestThatNeedsAKindRunsSoonAfterItWorks(t *testing.T) {
	const timer = 5 * time.Second
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := inAll(t, f)
	g := newGateway(t, newAuthority(t), f.Members[0])
	m := newManagerWith(t, f.Local, "", static{}, func(*mcmanager.Options) {})
	type run struct {
		err error
		at  time.Time
	}
	runs := make(chan run, 1000)
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).Named(controllerName(t)).
		Complete(mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			if req.Namespace != ns || req.Name != "a" {
				return reconcile.Result{}, nil
			}
			err := mcreconcile.ClusterFrom(ctx).GetClient().List(ctx, &corev1.SecretList{})
			runs <- run{err, time.Now()}
			return reconcile.Result{}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	m.start()
	name := 0
	eventually(t, "a request has run sooner than its timer", func() bool {
		name++
		allow := refusing(g, http.StatusForbidden, ofSecrets)
		member := fleet.Member{Name: fleet.ClusterName(fmt.Sprint("m", name)), Config: g.config()}
		m.set(member)
		last := <-runs
		if last.err == nil {
			t.Fatal("Secrets were read that are refused")
		}
		allow()
		next := <-runs
		for ; next.err != nil; next = <-runs {
			last = next
		}
		after := next.at.Sub(last.at)
		t.Logf("member %s: the request worked %s after it had failed", member.Name, after)
		<-m.members.Remove(member.Name)
		return after < timer
	})
}
