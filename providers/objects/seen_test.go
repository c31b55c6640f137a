package objects

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holding is a cache that has an object or not.
type holding struct {
	cache.Cache // for methods that are not called

	has func(key client.ObjectKey) bool
}

// Get implements cache.Cache.
func (h holding) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if h.has(key) {
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// synced is a registration that has synced.
type synced struct {
	toolscache.ResourceEventHandlerRegistration
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (synced) HasSynced() bool { return true }

// finding is a worker that finds objects and namespaces as these functions say.
func finding(object, namespace func(key client.ObjectKey) bool) *worker[*corev1.Secret] {
	watching := func(kind string, has func(client.ObjectKey) bool) watches {
		gvk := corev1.SchemeGroupVersion.WithKind(kind)
		return watches{scheme.Scheme, []*watch{{kind: gvk, cache: holding{has: has}, handled: synced{}}}}
	}
	return &worker[*corev1.Secret]{
		provider:   Provider[*corev1.Secret]{Object: &corev1.Secret{}, NamespaceSelector: labels.Everything()},
		own:        watching("Secret", object),
		namespaces: watching("Namespace", namespace),
	}
}

func TestANamespaceThatBeginsToCountFindsEachObjectInIt(t *testing.T) {
	yes := func(client.ObjectKey) bool { return true }
	no := func(client.ObjectKey) bool { return false }
	key := client.ObjectKey{Namespace: "ns", Name: "secret"}
	for name, tc := range map[string]struct {
		object, namespace func(client.ObjectKey) bool
		want              bool
	}{
		"an object that counts":                          {yes, yes, true},
		"one whose namespace does not count":             {yes, no, true},
		"one that is gone":                               {no, yes, false},
		"one that is gone where nothing counts any more": {no, no, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w *worker[*corev1.Secret]
			asked := 0
			w = finding(tc.object, func(namespace client.ObjectKey) bool {
				asked++
				if !slices.Contains(w.seen.in(key.Namespace), key) {
					t.Error("labels of the namespace that change now are not noticed")
				}
				return tc.namespace(namespace)
			})
			w.seen.add(key)
			_, err := w.find(t.Context(), key)
			if counts := tc.object(key) && tc.namespace(key); counts != (err == nil) || !counts && !apierrors.IsNotFound(err) {
				t.Errorf("looked for, the answer is: %v", err)
			}
			if got := slices.Contains(w.seen.in(key.Namespace), key); got != tc.want || !tc.want && len(w.seen.keys) > 0 {
				t.Errorf("known in its namespace: %t, want %t; there is %v", got, tc.want, w.seen.keys)
			}
			if tc.want && asked == 0 {
				t.Error("the namespace was not looked at")
			}
		})
	}
}
