package namespaces

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// member is the cluster of one namespace. It is a value: two of the same namespace are equal, so that a namespace that
// is reported again changes nothing.
type member struct {
	shared    *shared
	namespace string
	uid       types.UID // tells a namespace from an earlier one of the same name
}

var _ cluster.Cluster = member{}

// GetClient implements cluster.Cluster.
func (m member) GetClient() client.Client {
	return confinedClient{client: m.shared.cluster.GetClient(), member: m}
}

// GetAPIReader implements cluster.Cluster.
func (m member) GetAPIReader() client.Reader {
	return confinedReader{reader: m.shared.cluster.GetAPIReader(), member: m}
}

// GetCache implements cluster.Cluster.
func (m member) GetCache() cache.Cache {
	return confinedCache{confinedReader: confinedReader{reader: m.shared.cluster.GetCache(), member: m}}
}

// GetFieldIndexer implements cluster.Cluster.
func (m member) GetFieldIndexer() client.FieldIndexer { return m.shared }

// GetEventRecorder implements recorder.Provider.
func (m member) GetEventRecorder(name string) recorder.EventRecorder {
	return confinedRecorder{recorder: m.shared.cluster.GetEventRecorder(name), member: m}
}

// GetEventRecorderFor implements recorder.Provider.
func (m member) GetEventRecorderFor(name string) record.EventRecorder {
	inner := m.shared.cluster.GetEventRecorderFor(name) //nolint:staticcheck // cluster.Cluster has it still
	return confinedOldRecorder{recorder: inner, member: m}
}

// GetHTTPClient implements cluster.Cluster. It is that of the whole cluster.
func (m member) GetHTTPClient() *http.Client { return m.shared.cluster.GetHTTPClient() }

// GetConfig implements cluster.Cluster. It is that of the whole cluster.
func (m member) GetConfig() *rest.Config { return m.shared.cluster.GetConfig() }

// GetScheme implements cluster.Cluster.
func (m member) GetScheme() *runtime.Scheme { return m.shared.cluster.GetScheme() }

// GetRESTMapper implements cluster.Cluster.
func (m member) GetRESTMapper() meta.RESTMapper { return m.shared.cluster.GetRESTMapper() }

// Start implements cluster.Cluster. What the member is made of runs already, so it only waits for the end of ctx.
func (m member) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
