package fleet

import (
	"context"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/internal/eventlog"
	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/restmapper"
)

// newCluster makes the cluster of an engagement, which is not started yet.
func (m *member) newCluster(cfg *rest.Config, e *Engagement, described Member) (cluster.Cluster, error) {
	logger := eventlog.Quiet(m.logger(), classify)
	legacy := false
	options := append([]cluster.Option{func(o *cluster.Options) {
		o.Scheme = m.fleet.opts.Scheme
		o.HTTPClient = &http.Client{Transport: m.transport(e.wire), Timeout: cfg.Timeout}
		o.Logger = logger
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.MapperProvider = func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
			return restmapper.New(e.ctx, cfg, httpClient, &m.fleet.groups)
		}
	}}, m.fleet.opts.ClusterOptions(described)...)
	options = append(options, func(o *cluster.Options) {
		wrapNewCache(o, e)
		m.wrapNewInformer(o, e)
		legacy = o.EventBroadcaster == nil //nolint:staticcheck // it can be set
	})
	made, err := cluster.New(cfg, options...)
	if err != nil {
		return nil, err
	}
	c := newRotatingCluster(made, cfg)
	if legacy {
		c.recorders = newRecorders(e, made, logger.WithName("events"))
	}
	return c, nil
}

// newRecorders makes recorders for an engagement, which end with it.
func newRecorders(e *Engagement, c cluster.Cluster, logger logr.Logger) *eventlog.Recorders {
	var recorders *eventlog.Recorders
	recorders = eventlog.NewRecorders(c.GetScheme(), logger, func() (record.EventSink, error) {
		events, err := typedcorev1.NewForConfigAndClient(c.GetConfig(), c.GetHTTPClient())
		if err != nil {
			return nil, err
		}
		context.AfterFunc(e.ctx, recorders.End)
		return &typedcorev1.EventSinkImpl{Interface: events.Events("")}, nil
	})
	return recorders
}

// wrapNewCache puts the cluster's cache below one that says when a kind cannot be listed.
func wrapNewCache(o *cluster.Options, e *Engagement) {
	newCache := o.NewCache
	if newCache == nil {
		newCache = cache.New
	}
	o.NewCache = func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		mapper := opts.Mapper
		scopes := &scopes{RESTMapper: mapper}
		opts.Mapper = scopes
		c, err := newCache(cfg, opts)
		if err != nil {
			return nil, err
		}
		scopes.made.Store(true)
		candid := &candidCache{
			cache: c, scheme: opts.Scheme, mapper: mapper, kinds: e.kinds, informers: &e.informers,
			explicit: opts.ReaderFailOnMissingInformer,
		}
		e.kinds.open = candid.open
		e.kinds.index = func(ctx context.Context, i *index) error { return c.IndexField(ctx, i.object, i.field, i.extract) }
		return candid, nil
	}
}

// wrapNewInformer makes the member's informers retry by themselves.
func (m *member) wrapNewInformer(o *cluster.Options, e *Engagement) {
	inner := o.Cache.NewInformer
	switch {
	case inner != nil:
	case o.Cache.DefaultWatchErrorHandler != nil: // the fleet's informers take none
		inner = toolscache.NewSharedIndexInformer
	default:
		inner = informer.New
	}
	scheme := o.Scheme
	o.Cache.NewInformer = func(
		lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		key, err := informer.KeyOf(obj, scheme)
		if err != nil {
			key.GVK = obj.GetObjectKind().GroupVersionKind()
		}
		made := inner(&retrying{
			ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw),
			key:                      key, kind: e.kinds.stateOf(key), kinds: e.kinds, wire: e.wire,
		}, obj, resync, indexers)
		own, _ := made.(*informer.Informer)
		if err == nil {
			e.informers.Add(key, own)
		}
		if own != nil {
			return own.LivingFor(e.ctx, e.background.Go)
		}
		return made
	}
}
