package fleet

import (
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// unmapped is a mapper that knows no kinds while it is down, as if a CRD were gone.
type unmapped struct {
	meta.RESTMapper
	down *atomic.Bool
}

func (u unmapped) RESTMapping(gk schema.GroupKind, v ...string) (*meta.RESTMapping, error) {
	if u.down.Load() {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: v}
	}
	return u.RESTMapper.RESTMapping(gk, v...)
}

// TestAnInformerThatCannotBeForgottenIsNotEnded: the cache would have it for good, and it would hear of nothing.
func TestAnInformerThatCannotBeForgottenIsNotEnded(t *testing.T) {
	for name, release := range map[string]bool{"removed": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			cp := pool.Share(t, mctest.Options{})
			ns := cp.CreateNamespace(t)
			var down atomic.Bool
			f := running(t, Options{ClusterOptions: func(Member) []cluster.Option {
				return []cluster.Option{func(o *cluster.Options) {
					o.Cache.DefaultNamespaces = map[string]cache.Config{ns: {}}
					provide := o.MapperProvider
					o.MapperProvider = func(cfg *rest.Config, c *http.Client) (meta.RESTMapper, error) {
						m, err := provide(cfg, c)
						return unmapped{m, &down}, err
					}
				}}
			}})
			if err := f.set(Member{Name: "a", Config: cp.Config()}); err != nil {
				t.Fatal(err)
			}
			var c *candidCache
			mustBecome(func() bool {
				e, err := f.Engagement("a")
				if err == nil {
					c = e.Cluster().GetCache().(*candidCache) //nolint:forcetypeassert // those of members are
				}
				return err == nil
			})
			if _, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
				t.Fatal(err)
			}
			down.Store(true)
			var err error
			if release {
				_, err = c.ReleaseInformer(t.Context(), &corev1.ConfigMap{})
			} else {
				err = c.RemoveInformer(t.Context(), &corev1.ConfigMap{})
			}
			if err == nil {
				t.Fatal("the cache can forget it")
			}
			down.Store(false)
			i, err := c.GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
				t.Error(err)
			}
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "new"}}
			if err := cp.Client().Create(t.Context(), cm); err != nil {
				t.Fatal(err)
			}
			mustBecome(func() bool {
				err := c.Get(t.Context(), client.ObjectKeyFromObject(cm), &corev1.ConfigMap{})
				if err != nil && i.IsStopped() {
					t.Fatalf("the informer that is handed out has ended, and reads say %v", err)
				}
				return err == nil
			})
		})
	}
}
