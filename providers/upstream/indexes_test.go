package upstream

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// indexer refuses an index that it has, as a cache does.
type indexer struct {
	fields []string
	err    error
}

// IndexField implements client.FieldIndexer.
func (i *indexer) IndexField(_ context.Context, _ client.Object, field string, _ client.IndexerFunc) error {
	if i.err != nil || slices.Contains(i.fields, field) {
		return errors.Join(i.err, errors.New("conflict"))
	}
	i.fields = append(i.fields, field)
	return nil
}

// indexing is a cluster with an indexer.
type indexing struct {
	cluster.Cluster
	client.FieldIndexer
}

// GetFieldIndexer implements cluster.Cluster.
func (c indexing) GetFieldIndexer() client.FieldIndexer { return c.FieldIndexer }

// share shares the indexer until the test ends.
func share(t *testing.T, x *indexes, i client.FieldIndexer) client.FieldIndexer {
	t.Helper()
	cl, unshare := x.share(indexing{FieldIndexer: i})
	t.Cleanup(unshare)
	return cl.GetFieldIndexer()
}

func byName(obj client.Object) []string { return []string{obj.GetName()} }

func TestClustersThatShareACacheShareItsIndexes(t *testing.T) {
	var x indexes
	inner, other := &indexer{}, &indexer{}
	for _, cl := range []client.FieldIndexer{share(t, &x, inner), share(t, &x, inner), share(t, &x, other)} {
		if err := cl.IndexField(t.Context(), &corev1.ConfigMap{}, "color", byName); err != nil {
			t.Error(err)
		}
	}
	for _, i := range []*indexer{inner, other} {
		if diff := cmp.Diff([]string{"color"}, i.fields); diff != "" {
			t.Errorf("indexes (-want, +got):\n%s", diff)
		}
	}
}

func TestIndexesOfDifferentKindsAreDifferent(t *testing.T) {
	var x indexes
	inner := &indexer{}
	cl := share(t, &x, inner)
	partial := func(kind string) client.Object {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kind}}
	}
	for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, partial("ConfigMap"), partial("Secret")} {
		inner.fields = nil // each has a cache of its own
		if err := cl.IndexField(t.Context(), obj, "color", byName); err != nil {
			t.Error(err)
		}
		if len(inner.fields) != 1 {
			t.Errorf("%T %v was taken for indexed", obj, obj.GetObjectKind().GroupVersionKind())
		}
	}
}

func TestAnIndexThatFailedIsTriedAgain(t *testing.T) {
	var x indexes
	inner := &indexer{err: errors.New("no such kind")}
	cl := share(t, &x, inner)
	if err := cl.IndexField(t.Context(), &corev1.ConfigMap{}, "color", byName); !errors.Is(err, inner.err) {
		t.Errorf("got %v, want %v", err, inner.err)
	}
	inner.err = nil
	if err := cl.IndexField(t.Context(), &corev1.ConfigMap{}, "color", byName); err != nil || len(inner.fields) != 1 {
		t.Errorf("got %v and the indexes %v", err, inner.fields)
	}
}

func TestIndexesOfASharedCacheAreRememberedWhenAllHaveLeft(t *testing.T) {
	var x indexes
	inner := &indexer{}
	t.Run("two", func(t *testing.T) {
		share(t, &x, inner)
		if err := share(t, &x, inner).IndexField(t.Context(), &corev1.ConfigMap{}, "color", byName); err != nil {
			t.Fatal(err)
		}
	})
	if err := share(t, &x, inner).IndexField(t.Context(), &corev1.ConfigMap{}, "color", byName); err != nil {
		t.Error(err)
	}
}
