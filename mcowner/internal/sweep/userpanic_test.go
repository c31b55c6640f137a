package sweep

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ownerless is a manager without members, in whose local cluster no owner is.
type ownerless struct {
	mcmanager.Manager
	client.Reader
}

// GetProvider implements mcmanager.Manager.
func (*ownerless) GetProvider() fleet.Provider { return nil }

// GetAPIReader implements cluster.Cluster.
func (o *ownerless) GetAPIReader() client.Reader { return o }

// GetCache implements cluster.Cluster.
func (o *ownerless) GetCache() cache.Cache { return ownerlessCache{nil, o} }

// Get finds nothing, and says which cluster it is.
func (*ownerless) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if key.Name == metav1.NamespaceSystem {
		obj.SetUID("here")
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
}

// ownerlessCache reads the same.
type ownerlessCache struct {
	cache.Cache

	of *ownerless
}

// Get implements client.Reader.
func (c ownerlessCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.of.Get(ctx, key, obj, opts...)
}

// rightful is an ownerless cluster in which one user has no rights.
type rightful struct {
	hanging

	rightless string
}

// GetScheme implements cluster.Cluster.
func (*rightful) GetScheme() *runtime.Scheme { return scheme.Scheme }

// GetHTTPClient implements cluster.Cluster.
func (r *rightful) GetHTTPClient() *http.Client { return &http.Client{Transport: r} }

// GetRESTMapper implements cluster.Cluster.
func (*rightful) GetRESTMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return m
}

// RoundTrip implements http.RoundTripper.
func (r *rightful) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return r.hanging.RoundTrip(req)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if req.Header.Get("Impersonate-User") == r.rightless {
		w.WriteHeader(http.StatusForbidden)
	} else {
		r.deleted.Add(1)
	}
	_, err := w.WriteString("{}")
	return w.Result(), err
}

// TestAnOrphanGoesIfAnyUserOfItsOwnersMayRemoveIt: one that has no rights any more holds up no other, nor one for which User panics.
func TestAnOrphanGoesIfAnyUserOfItsOwnersMayRemoveIt(t *testing.T) {
	t.Parallel()
	for _, rightless := range []string{"owner-orphan-0", "owner-orphan-1"} {
		for _, panics := range []bool{false, true} {
			mgr := &rightful{rightless: rightless}
			s := knownSweeper(mgr)
			s.limit = newLimit(1000)
			s.writers = remote.Writers{Access: s.access, User: func(owner mcreconcile.Request) string {
				if panics && owner.Name == rightless {
					panic("on purpose")
				}
				return owner.Name
			}}
			sweepOf(t, s, []client.Object{dependent(t, mcreconcile.LocalCluster, "orphan", "owner", 2, "here")})
			if n := mgr.deleted.Load(); n != 1 {
				t.Errorf("where %s has no rights, or no user (%t), it was deleted %d times", rightless, panics, n)
			}
		}
	}
}

// TestANamespaceOfSeveralUsersIsLookedIntoOnce, whoever of them may not remove it.
func TestANamespaceOfSeveralUsersIsLookedIntoOnce(t *testing.T) {
	t.Parallel()
	mgr := &rightful{rightless: "owner-of-created"}
	mgr.kinds = 5
	mgr.empty.Store(true)
	s := knownSweeper(mgr)
	s.limit = newLimit(1000)
	s.writers = remote.Writers{Access: s.access, User: func(owner mcreconcile.Request) string { return owner.Name }}
	ns := createdNamespace(t, mcreconcile.LocalCluster, "created")
	second := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "second", UID: "2", ClusterUID: "here"}
	if err := mcowner.SetOwnerReference(second, ns, mcowner.ClusterID{Name: mcreconcile.LocalCluster, UID: "here"}); err != nil {
		t.Fatal(err)
	}
	k := remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Proto: &corev1.Namespace{}}
	for _, mgr.rightless = range []string{"owner-of-created", "second"} {
		mgr.lists.Store(0)
		mgr.deleted.Store(0)
		found := &findings{pass: &pass{}, turn: turn{places: newPlaces(), unsure: map[ownerHash]error{}}, alive: map[ownerKey]struct{}{}}
		s.look(t.Context(), remote.Session{ID: mcowner.ClusterID{UID: "here"}, Cluster: mgr}, k, ns, found)
		if mgr.deleted.Load() != 1 || int(mgr.lists.Load()) != mgr.kinds {
			t.Errorf("where %s has no rights, it was deleted %d times after %d lists: %v", mgr.rightless, mgr.deleted.Load(), mgr.lists.Load(), found.failures())
		}
	}
}

// TestAPanicOfUserEndsNeitherTheProcessNorTheSweep: whoever may write a reference names an owner of which User makes nothing.
func TestAPanicOfUserEndsNeitherTheProcessNorTheSweep(t *testing.T) {
	t.Parallel()
	s := knownSweeper(&ownerless{})
	s.OwnersIn, s.limit = mcowner.Clusters{Local: true}, newLimit(1000)
	var asked []string
	s.writers = remote.Writers{Access: s.access, User: func(owner mcreconcile.Request) string {
		asked = append(asked, owner.Name)
		panic("on purpose")
	}}
	in := mcowner.ClusterID{UID: "here"}
	each := func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		for _, name := range []string{"b", "c"} {
			forged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
			of := mcowner.Reference{
				Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner-of-" + name, UID: "1",
				ClusterUID: in.UID, Controller: true,
			}
			if err := mcowner.SetControllerReference(of, forged, in); err != nil {
				t.Error(err)
			}
			if err := do(forged); err != nil {
				t.Error(err)
			}
		}
		return true, nil
	}
	s.sweep(log.IntoContext(t.Context(), logr.Discard()), s.memory(mcreconcile.LocalCluster), way{each: each, pass: func(c *sweepMemory) *pass { return &c.listed }, places: newPlaces()})
	if len(asked) != 2 {
		t.Errorf("User was asked for %v, want both owners", asked)
	}
}
