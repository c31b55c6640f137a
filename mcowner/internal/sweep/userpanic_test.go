package sweep

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
