package sweep

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// hanging is an ownerless cluster of many kinds. An object that is being deleted is in each of its namespaces, until they are empty.
type hanging struct {
	ownerless
	client.Client

	kinds                int
	refused              error // what deletions run into
	orphan               *metav1.PartialObjectMetadata
	released             atomic.Int32
	empty                atomic.Bool
	gets, lists, deleted atomic.Int32 // gets but for those of its identity
}

// GetFleet implements mcmanager.Manager.
func (*hanging) GetFleet() *fleet.Fleet { return fleet.New(fleet.Options{Logger: logr.Discard()}) }

// GetConfig implements cluster.Cluster.
func (*hanging) GetConfig() *rest.Config { return &rest.Config{Host: "hanging"} }

// GetHTTPClient implements cluster.Cluster.
func (h *hanging) GetHTTPClient() *http.Client { return &http.Client{Transport: h} }

// GetAPIReader implements cluster.Cluster.
func (h *hanging) GetAPIReader() client.Reader { return h }

// GetClient implements cluster.Cluster.
func (h *hanging) GetClient() client.Client { return h }

// RoundTrip implements http.RoundTripper, and says which kinds there are.
func (h *hanging) RoundTrip(req *http.Request) (*http.Response, error) {
	var answer any = metav1.APIGroupList{}
	switch req.URL.Path {
	case "/api":
		answer = metav1.APIVersions{Versions: []string{"v1"}}
	case "/api/v1":
		list := metav1.APIResourceList{GroupVersion: "v1"}
		for n := range h.kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: fmt.Sprint("kinds", n), Kind: fmt.Sprint("Kind", n), Namespaced: true, Verbs: metav1.Verbs{"list"},
			})
		}
		answer = list
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(w).Encode(answer)
	return w.Result(), err
}

// Get implements client.Reader.
func (h *hanging) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if key.Name != metav1.NamespaceSystem {
		h.gets.Add(1)
	}
	return h.ownerless.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (h *hanging) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	h.lists.Add(1)
	if list.GetObjectKind().GroupVersionKind().Kind == "Kind0List" && !h.empty.Load() {
		going := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "going", DeletionTimestamp: new(metav1.Now())}}
		if h.orphan != nil {
			going = *h.orphan
		}
		list.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{going} //nolint:forcetypeassert // of nothing else
	}
	return nil
}

// Patch implements client.Writer.
func (h *hanging) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	h.released.Add(1)
	return nil
}

// Delete implements client.Writer.
func (h *hanging) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	if h.refused == nil {
		h.deleted.Add(1)
	}
	return h.refused
}

// sweeper returns a sweeper of the cluster's namespaces.
func (h *hanging) sweeper() *Sweeper {
	s := knownSweeper(h)
	s.writers = remote.Writers{Access: s.access}
	s.kinds = []remote.Kind{{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Proto: &corev1.Namespace{}}}
	return s
}

// createdNamespace returns one in a cluster that was created for an owner, which is gone.
func createdNamespace(t *testing.T, in mcreconcile.ClusterName, name string) client.Object {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{mcowner.CreatedByAnnotation: "payments"},
	}}
	of := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner-of-" + name, UID: "1", ClusterUID: "here"}
	if err := mcowner.SetOwnerReference(of, ns, mcowner.ClusterID{Name: in, UID: "here"}); err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestALookIntoANamespaceCountsForTheTurnOfItsSweep, which goes on until it is done: what is created meanwhile goes with the namespace.
func TestALookIntoANamespaceCountsForTheTurnOfItsSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{kinds: 100}
		h.empty.Store(true)
		s := h.sweeper()
		s.Interval = time.Second
		found := &findings{pass: &pass{}, turn: turn{places: newPlaces(), unsure: map[ownerHash]error{}}, alive: map[ownerKey]struct{}{}}
		at, ns := remote.Session{ID: mcowner.ClusterID{UID: "here"}, Cluster: h}, createdNamespace(t, mcreconcile.LocalCluster, "created")
		if err := found.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.look(t.Context(), at, s.kinds[0], ns, found); h.deleted.Load() != 1 {
			t.Errorf("it was deleted %d times: %v", h.deleted.Load(), found.failures())
		}
		if n, took := h.lists.Load(), time.Since(found.began); int(n) != h.kinds || took < 4*time.Second || found.gave > 0 {
			t.Errorf("%d lists took %s; others have had their turn meanwhile: %d times", n, took, found.gave)
		}
		if err := s.giveWay(t.Context(), &found.turn); err != nil || found.gave != 1 {
			t.Errorf("others have had their turn after that: %d times (%v)", found.gave, err)
		}
	})
}

// TestANamespaceThatHangsIsLookedIntoEverMoreRarely, and goes soon after it is empty: what is in it often takes half a minute to stop.
func TestANamespaceThatHangsIsLookedIntoEverMoreRarely(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ hangs, late time.Duration }{
		"for a moment": {30 * time.Second, time.Minute}, "for minutes": {5 * time.Minute, 5 * time.Minute}, "for a day": {24 * time.Hour, 11 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{kinds: 50}
				s := h.sweeper()
				by := s.byCaches()
				by.each = func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
					return true, do(createdNamespace(t, mcreconcile.LocalCluster, "created"))
				}
				time.AfterFunc(tc.hangs, func() { h.empty.Store(true) })
				for began := time.Now(); h.deleted.Load() == 0 && time.Since(began) <= tc.hangs+tc.late; {
					s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), by)
					<-time.After(s.Interval)
				}
				if h.deleted.Load() == 0 {
					t.Errorf("it is there %s after it was empty", tc.late)
				}
				if n, most := int(h.lists.Load())/h.kinds, 6+int(tc.hangs/(10*time.Minute)); n > most {
					t.Errorf("there were %d looks into it, want %d at most", n, most)
				}
			})
		})
	}
}

// TestANamespaceThatCannotBeRemovedIsLookedIntoEverMoreRarely: whether it is empty takes a request for each kind.
func TestANamespaceThatCannotBeRemovedIsLookedIntoEverMoreRarely(t *testing.T) {
	t.Parallel()
	namespaces := schema.GroupResource{Resource: "namespaces"}
	for name, tc := range map[string]struct {
		refused error
		user    func(mcreconcile.Request) string
	}{
		"forbidden":      {refused: apierrors.NewForbidden(namespaces, "created", nil)},
		"by a policy":    {refused: apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "created", nil)},
		"without a user": {user: func(mcreconcile.Request) string { panic("on purpose") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &hanging{kinds: 50, refused: tc.refused}
				h.empty.Store(true)
				s := h.sweeper()
				s.writers.User = tc.user
				by := s.byCaches()
				by.each = func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
					return true, do(createdNamespace(t, mcreconcile.LocalCluster, "created"))
				}
				for began := time.Now(); time.Since(began) < time.Hour; <-time.After(s.Interval) {
					s.sweep(log.IntoContext(t.Context(), logr.Discard()), s.memory(mcreconcile.LocalCluster), by)
				}
				if n := int(h.lists.Load()) / h.kinds; n == 0 || n > 12 {
					t.Errorf("there were %d looks into it in an hour", n)
				}
			})
		})
	}
}

// TestANamespaceDoesNotWaitForGoodForWhatNobodyLooksFor, such as of a kind that was noted on its owner alone, which is gone.
func TestANamespaceDoesNotWaitForGoodForWhatNobodyLooksFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{kinds: 50}
		s := h.sweeper()
		ns := createdNamespace(t, mcreconcile.LocalCluster, "created")
		of := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "owner-of-created", UID: "1", ClusterUID: "here"}
		h.orphan = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "created", Name: "orphan", UID: "2"}}
		h.orphan.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Kind0"})
		if err := mcowner.SetOwnerReference(of, h.orphan, mcowner.ClusterID{UID: "here"}); err != nil {
			t.Fatal(err)
		}
		by := s.byCaches()
		by.each = func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
			if h.released.Load() > 0 {
				return true, nil
			}
			return true, do(ns)
		}
		began := time.Now()
		for ; h.released.Load() == 0 && time.Since(began) < 3*time.Hour; <-time.After(s.Interval) {
			s.sweep(log.IntoContext(t.Context(), logr.Discard()), s.memory(mcreconcile.LocalCluster), by)
		}
		if took := time.Since(began); took < 50*time.Minute || took > 80*time.Minute {
			t.Errorf("it was waited for %s, want about an hour", took)
		}
	})
}

// TestNamespacesThatAreNoMoreAreForgotten: nobody says that they went.
func TestNamespacesThatAreNoMoreAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pass
		for n := range 10 {
			p.noteEmptying(types.UID(fmt.Sprint(n)))
			<-time.After(2 * forgetEmptying)
		}
		if n := len(p.emptying); n != 1 {
			t.Errorf("%d namespaces are remembered, want the last one", n)
		}
	})
}

// TestLooksIntoNamespacesHoldUpNoOtherMember, however many namespaces are emptying.
func TestLooksIntoNamespacesHoldUpNoOtherMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const busy = remote.AtOnce
		s, full, other := newSchedule(busy+1, 0), &hanging{kinds: 50}, &hanging{kinds: 50}
		other.empty.Store(true)
		of := full.sweeper()
		s.Fleet, s.access, s.proof, s.writers.Access, s.kinds = of.Fleet, of.access, of.proof, of.access, of.kinds
		s.Watched, s.Listing = nil, 0
		last := s.names()[busy]
		s.visit = func(ctx context.Context, name mcreconcile.ClusterName, do func(context.Context, remote.Session) error) error {
			at := remote.Session{ID: mcowner.ClusterID{Name: name, UID: "here"}, Cluster: full}
			if name == last {
				at.Cluster = other
			}
			return do(ctx, at)
		}
		s.list = func(ctx context.Context, at remote.Session, _ remote.Kind, do func(client.Object) error) error {
			if err := s.limit.waitToList(ctx); err != nil {
				return err
			}
			for n := range 20 {
				if err := do(createdNamespace(t, at.Name(), fmt.Sprint("created-", n))); err != nil || at.Name() == last {
					return err
				}
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		<-time.After(3 * time.Minute)
		if other.deleted.Load() == 0 {
			t.Errorf("after %d lists elsewhere, a namespace in another member is there still", full.lists.Load())
		}
		cancel()
		running.Wait()
	})
}
