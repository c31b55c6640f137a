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
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
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

// TestAnOwnerThatIsItsOwnIsReleasedWithoutAPermit, also where no further cluster is changed since one has failed: nothing that is rolled out changes by
// that. Nobody is told that the owner goes.
func TestAnOwnerThatIsItsOwnIsReleasedWithoutAPermit(t *testing.T) {
	t.Parallel()
	itself := ownerNamed("a-copy", func(r *mcowner.Reference) { r.Cluster, r.ClusterUID, r.UID = at.Name, at.UID, "9" })
	p, to, done := placing(), &patches{}, &report{}
	p.writer, p.asked.ref, p.o = to, itself, newOwnerState(mcreconcile.Request{}, "1")
	p.o.progress = rollout.New(rollout.Policy{HaltAfter: 1}, "1")
	p.o.progress.Recall(record.NewFailures("1", []mcreconcile.ClusterName{"bad"}))
	found := []dependent{{remote.Untyped(corev1.SchemeGroupVersion.WithKind("ConfigMap")), owned(t, itself)}}
	found[0].obj.SetResourceVersion("1")
	if err := p.prune(t.Context(), found, nil, done); err != nil || len(done.Objects) > 0 || len(to.sent) == 0 {
		t.Errorf("it is released by %q, %v, and this is told: %+v", to.sent, err, done.Objects)
	}
}
