package fleet

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// TestAStorageThatIsRestoredBeforeAWatchBeginsIsListedAnew: the list came before the outage, and the watch after it.
func TestAStorageThatIsRestoredBeforeAWatchBeginsIsListedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version, watches := "10", 0
		r := &retrying{
			key: informer.Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, kinds: newKinds(t.Context(), "a"),
			wire: &wire{health: newHealth(HealthOptions{}, nil, nil, nil)},
			ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					if watches++; watches == 1 {
						version = "5"
						return nil, apierrors.NewServiceUnavailable("away")
					}
					return watch.NewFake(), nil
				},
			}),
		}
		r.kind = r.kinds.informerOf(r.key)
		if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "10"}); !apierrors.IsResourceExpired(err) {
			t.Errorf("the watch goes on from a version that the server has not reached: %v", err)
		}
	})
}
