package mcmanager_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// confined are options of an operator that may look into the namespace default alone.
func confined() mcmanager.Options {
	return mcmanager.Options{
		Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{metav1.NamespaceDefault: {}}},
	}
}

func withCache(change func(*cache.Options)) mcmanager.FleetOption {
	return func(o *fleet.Options) {
		o.ClusterOptions = func(fleet.Member) []cluster.Option {
			return []cluster.Option{func(o *cluster.Options) { change(&o.Cache) }}
		}
	}
}

// TestMembersAreCachedAsTheManagerSays: an operator that is confined to a namespace is so in every member.
func TestMembersAreCachedAsTheManagerSays(t *testing.T) {
	t.Parallel()
	plane := pool.Start(t, mctest.Options{}).Local // there are ConfigMaps in kube-system
	unserved := &unstructured.Unstructured{}
	unserved.SetAPIVersion("test.fleet-runtime.dev/v1")
	unserved.SetKind("Unserved")
	for name, c := range map[string]struct {
		reason  string
		options []mcmanager.FleetOption
		finds   bool
	}{
		"AsTheManager": {"The options of the manager apply.", nil, false},
		"Reset":        {"The options of the fleet come last.", []mcmanager.FleetOption{withCache(func(o *cache.Options) { *o = cache.Options{} })}, true},
		"KindNotServed": {"A kind that the member lacks holds up nothing.", []mcmanager.FleetOption{withCache(func(o *cache.Options) {
			o.ByObject = map[client.Object]cache.ByObject{unserved: {}}
		})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			members := &fleettest.Provider{}
			mgr, err := mcmanager.New(plane.Config(), members, confined(), c.options...)
			if err != nil {
				t.Fatal(err)
			}
			s := &serving{Manager: mgr, t: t, members: members}
			s.start()
			s.join("m", plane.Config(), nil)
			s.is("m", fleet.Ready)
			cl, err := mgr.GetCluster(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			var found corev1.ConfigMapList
			err = cl.GetClient().List(t.Context(), &found, client.InNamespace(metav1.NamespaceSystem))
			if finds := err == nil && len(found.Items) > 0; finds != c.finds {
				t.Errorf("%s Objects of another namespace are found: %t (%v)", c.reason, finds, err)
			}
		})
	}
}

// TestOptionsOfOneClusterAreRefused: they would lead the members' clients to the local cluster.
func TestOptionsOfOneClusterAreRefused(t *testing.T) {
	t.Parallel()
	plane := pool.Start(t, mctest.Options{}).Local
	for name, change := range map[string]func(*mcmanager.Options){
		"Cache.HTTPClient":    func(o *mcmanager.Options) { o.Cache.HTTPClient = http.DefaultClient },
		"Client.Cache.Reader": func(o *mcmanager.Options) { o.Client.Cache = &client.CacheOptions{Reader: fake{}} },
	} {
		opts := confined()
		change(&opts)
		if _, err := mcmanager.New(plane.Config(), &fleettest.Provider{}, opts); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New() with %s = %v, want an error that names it", name, err)
		}
		if _, err := mcmanager.New(plane.Config(), nil, opts); err != nil {
			t.Errorf("New() with %s and without a provider = %v", name, err)
		}
	}
}

// fake is a reader that is never read.
type fake struct{ client.Reader }
