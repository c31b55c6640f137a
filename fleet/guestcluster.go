package fleet

import (
	"context"
	"net/http"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// Cluster returns the client with what it is made of. It has no cache, no index and no recorders: the methods for these must not
// be called. What is made of its config and HTTP client travels as the client does, but for a cluster that the provider made: then
// it passes no gate, and may reach more than the member.
func (g *Guest) Cluster() cluster.Cluster { return g.cluster }

// guestCluster is a cluster without a cache. Cluster is the one that the provider made, or nil.
type guestCluster struct {
	cluster.Cluster

	client client.Client
	config *atomic.Pointer[rest.Config]
	http   *http.Client
}

// GetConfig implements cluster.Cluster. It has the credentials of this moment.
func (c guestCluster) GetConfig() *rest.Config { return c.config.Load() }

// GetHTTPClient implements cluster.Cluster.
func (c guestCluster) GetHTTPClient() *http.Client { return c.http }

// GetScheme implements cluster.Cluster.
func (c guestCluster) GetScheme() *runtime.Scheme { return c.client.Scheme() }

// GetRESTMapper implements cluster.Cluster.
func (c guestCluster) GetRESTMapper() meta.RESTMapper { return c.client.RESTMapper() }

// GetClient implements cluster.Cluster.
func (c guestCluster) GetClient() client.Client { return c.client }

// GetAPIReader implements cluster.Cluster.
func (c guestCluster) GetAPIReader() client.Reader { return c.client }

// uncached is a client of a cluster that a provider made. The cache of that may not run.
type uncached struct {
	client.Client

	live client.Reader
}

// Get implements client.Reader.
func (c uncached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.live.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.live.List(ctx, list, opts...)
}
