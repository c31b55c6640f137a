package dependents

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// unordered is a cache that returns ConfigMaps as they are here.
type unordered struct {
	cache.Cache

	all []corev1.ConfigMap
}

// IndexField implements client.FieldIndexer.
func (unordered) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

// List implements client.Reader.
func (c unordered) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.ConfigMapList).Items = slices.Clone(c.all) //nolint:forcetypeassert // nothing else is listed here
	return nil
}

// ofCache is a cluster with a cache.
type ofCache struct {
	cluster.Cluster

	cache unordered
}

// GetCache implements cluster.Cluster.
func (c ofCache) GetCache() cache.Cache { return c.cache }

// GetFieldIndexer implements cluster.Cluster.
func (c ofCache) GetFieldIndexer() client.FieldIndexer { return c.cache }

// TestDependentsAreListedInOneOrder, in whatever order a cache has them: another order would be news, and be written in slices.
func TestDependentsAreListedInOneOrder(t *testing.T) {
	t.Parallel()
	p, kind := placing(), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	p.at.ID = mcowner.ClusterID{Name: mcreconcile.LocalCluster, UID: "t"}
	p.engine.access.Timeout = time.Minute
	p.engine.watches = newWatches("payments", "copier", nil, p.engine.ledger)
	p.engine.watches.locally = map[schema.GroupVersionKind]bool{kind: true}
	var in unordered
	for _, key := range []client.ObjectKey{{Namespace: "b", Name: "a"}, {Namespace: "a", Name: "c"}, {Namespace: "a", Name: "b"}} {
		cm := corev1.ConfigMap{}
		cm.Namespace, cm.Name = key.Namespace, key.Name
		if err := mcowner.SetControllerReference(ownerNamed("a"), &cm, p.at.ID); err != nil {
			t.Fatal(err)
		}
		in.all = append(in.all, cm)
	}
	p.at.Cluster = ofCache{cache: in}
	objs, err := p.list(t.Context(), remote.Kind{GroupVersionKind: kind, Proto: &corev1.ConfigMap{}})
	names := make([]string, len(objs))
	for i, obj := range objs {
		names[i] = obj.GetNamespace() + "/" + obj.GetName()
	}
	if want := []string{"a/b", "a/c", "b/a"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("dependents are listed as %q, %v, want %q", names, err, want)
	}
}
