package mcbuilder_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// nothing lets no event pass: owners are then enqueued by their dependents alone.
var nothing = predicate.NewPredicateFuncs(func(client.Object) bool { return false })

// ownerIn returns a reference to the ConfigMap "owner" of a cluster.
func ownerIn(t *testing.T, fleetName string, name mcreconcile.ClusterName, cp *mctest.ControlPlane, ns string) mcowner.Reference {
	t.Helper()
	owner := &corev1.ConfigMap{}
	if err := cp.Client().Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "owner"}, owner); err != nil {
		t.Fatal(err)
	}
	r, err := mcowner.ReferenceTo(fleetName, mcowner.ByName(name), owner, scheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// dependent creates a Secret that its owner controls.
func dependent(t *testing.T, in *mctest.ControlPlane, ns, name string, owner mcowner.Reference) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := mcowner.SetControllerReference(owner, secret, mcowner.ByName(mcreconcile.ClusterName(in.Name))); err != nil {
		t.Fatal(err)
	}
	create(t, in, secret)
	return secret
}

func (s *seen) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

func TestAcrossClustersEnqueuesTheOwnerInItsCluster(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 2})
	ns := everywhere(t, f, "owner")
	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	if err := mcbuilder.ControllerManagedBy(mgr).Named("across").
		For(&corev1.ConfigMap{}, mcbuilder.WithPredicates(nothing), mcbuilder.InLocalCluster, mcbuilder.InMembers(nil)).
		Owns(&corev1.Secret{}, mcbuilder.AcrossClusters(mchandler.OfFleet("mine"))).Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	one, two := f.Members[0], f.Members[1]
	inOne := ownerIn(t, "mine", "member-1", one, ns)

	dependent(t, two, ns, "of-another-fleet", ownerIn(t, "theirs", "member-1", one, ns))
	notController := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "not-controlled"}}
	if err := mcowner.SetOwnerReference(ownerIn(t, "mine", "member-2", two, ns), notController, mcowner.ByName("member-2")); err != nil {
		t.Fatal(err)
	}
	create(t, two, notController)
	secret := dependent(t, two, ns, "of-one", inOne)
	s.become(t, "member-1/owner")

	// The owner before and the owner after the change are both enqueued.
	s.forget()
	patch := client.MergeFrom(secret.DeepCopy())
	mcowner.RemoveReference(inOne, secret)
	if err := mcowner.SetControllerReference(ownerIn(t, "mine", mcreconcile.LocalCluster, f.Local, ns), secret, mcowner.ByName("member-2")); err != nil {
		t.Fatal(err)
	}
	if err := two.Client().Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	s.become(t, "member-1/owner", "/owner")

	s.forget()
	if err := two.Client().Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	s.become(t, "/owner")
}

func TestAcrossClustersCanMatchEveryOwner(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := everywhere(t, f, "owner")
	mgr := newManager(t, f, members(f), logr.Discard())
	s := &seen{namespace: ns}
	if err := mcbuilder.ControllerManagedBy(mgr).Named("across-every").
		For(&corev1.ConfigMap{}, mcbuilder.WithPredicates(nothing), mcbuilder.InLocalCluster).
		Owns(&corev1.Secret{}, mcbuilder.AcrossClusters(), mcbuilder.MatchEveryOwner).Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owned"}}
	if err := mcowner.SetOwnerReference(ownerIn(t, "mine", mcreconcile.LocalCluster, f.Local, ns), secret, mcowner.ByName("member-1")); err != nil {
		t.Fatal(err)
	}
	create(t, f.Members[0], secret)
	s.become(t, "/owner")
}

// door is a way to a member that can be shut.
type door struct {
	mu    sync.Mutex
	shut  bool
	lists int // of Secrets, that came through
}

var errShut = errors.New("the door is shut")

func (d *door) set(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut, d.lists = shut, 0
}

func (d *door) hasListed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lists > 0
}

func (d *door) pass(req *http.Request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return errShut
	}
	if query := req.URL.Query(); req.URL.Path == "/api/v1/secrets" && (!query.Has("watch") || query.Has("sendInitialEvents")) {
		d.lists++
	}
	return nil
}

type throughDoor struct {
	*door
	http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d throughDoor) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := d.pass(req); err != nil {
		return nil, err
	}
	return d.RoundTripper.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (d throughDoor) WrappedRoundTripper() http.RoundTripper { return d.RoundTripper }

// TestADeletionThatNoWatchHasSeenEnqueuesTheOwner: the dependent is deleted while the member cannot be watched, and the API
// server has forgotten that when it can, so that the watch cannot go on where it was.
func TestADeletionThatNoWatchHasSeenEnqueuesTheOwner(t *testing.T) {
	f := pool.Start(t, mctest.Options{Clusters: 1})
	ns := everywhere(t, f, "owner")
	member, way := f.Members[0], &door{}
	provider := fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, to fleet.Members) error {
		cfg := member.Config()
		cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return throughDoor{way, rt} })
		if err := to.Set(fleet.Member{Name: "member-1", Config: cfg}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	mgr := newManager(t, f, provider, logr.Discard())
	s := &seen{namespace: ns}
	if err := mcbuilder.ControllerManagedBy(mgr).Named("across-missed").
		For(&corev1.ConfigMap{}, mcbuilder.WithPredicates(nothing), mcbuilder.InLocalCluster).
		Owns(&corev1.Secret{}, mcbuilder.AcrossClusters()).Complete(s); err != nil {
		t.Fatal(err)
	}
	start(t, mgr)
	owner := ownerIn(t, "mine", mcreconcile.LocalCluster, f.Local, ns)
	secret := dependent(t, member, ns, "of-local", owner)
	s.become(t, "/owner")

	way.set(true)
	// An API server knows nothing of what was before its start. A watch that has seen all up to there can go on, but that of
	// Secrets does not see this.
	create(t, member, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "unwatched"}})
	member.Stop(t)
	member.Restart(t)
	if err := member.Client().Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	s.forget()
	way.set(false)
	s.become(t, "/owner")
	if !way.hasListed() {
		t.Error("the watch went on where it was, so this has not shown what it is about")
	}
}

// ConfigMaps have Secrets in other clusters: an event on a Secret becomes a request for the ConfigMap that controls it.
func ExampleAcrossClusters() {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}).
		Owns(&corev1.Secret{}, mcbuilder.AcrossClusters(mchandler.OfFleet("payments"))).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}
