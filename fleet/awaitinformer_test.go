package fleet

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
)

// seizedCache does something the moment that it is asked for an informer.
type seizedCache struct {
	cache.Cache
	do func()
}

func (c *seizedCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	c.do()
	return nil, errNo
}

func (c *seizedCache) RemoveInformer(context.Context, client.Object) error { return nil }

// TestAKindIsNotReleasedUnderASourceThatWaitedForIt: it has got no informer yet.
func TestAKindIsNotReleasedUnderASourceThatWaitedForIt(t *testing.T) {
	t.Parallel()
	w, of, pod := newKindsWorld(t.Context()), &seizedCache{}, &corev1.Pod{}
	c := &candidCache{cache: of, scheme: scheme.Scheme, kinds: w.kinds, informers: &informer.Set{}}
	key, err := informer.KeyOf(pod, c.scheme)
	if err != nil {
		t.Fatal(err)
	}
	of.do = func() {
		c.informers.Add(key, informer.New(nil, pod, 0, toolscache.Indexers{}).(*informer.Informer)) //nolint:forcetypeassert // it is
		if released, err := c.ReleaseInformer(t.Context(), pod); released || err != nil {
			t.Errorf("released while somebody is about to get it: %t, %v", released, err)
		}
	}
	if _, err := c.AwaitInformer(t.Context(), pod); !errors.Is(err, errNo) {
		t.Errorf("AwaitInformer() = %v", err)
	}
	of.do = nil
	if released, err := c.ReleaseInformer(t.Context(), pod); !released || err != nil {
		t.Errorf("not released: %t, %v", released, err)
	}
}
