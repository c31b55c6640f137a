package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
)

// engage connects a member as described: it asks the API server whether it is ready and which cluster it is, starts a
// cache and adds the field indexes to it. attempt bounds that; the engagement that comes of it lives until it is ended, or
// life is. before is the engagement whose place it takes, if there is one.
func (f *Fleet) engage(attempt, life context.Context, described Member, m *member, before *Engagement) (*Engagement, error) {
	e := newEngagement(life, described.Name)
	e.kinds.onChange = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changedLocked(described.Name)
	}
	err := f.connect(attempt, e, described, m, before)
	if err == nil {
		err = f.addIndexes(attempt, e)
	}
	if err != nil {
		e.end(err)
		return nil, errors.Join(err, e.drain(context.WithoutCancel(life)))
	}
	return e, nil
}

func (f *Fleet) connect(attempt context.Context, e *Engagement, described Member, m *member, before *Engagement) (err error) {
	e.identity = described.Identity
	if described.Cluster != nil {
		e.cluster = described.Cluster
		e.identifyCluster(attempt)
		return nil
	}
	cfg := f.usable(described)
	first, err := newGeneration(cfg, &m.plugin)
	if err != nil {
		return err
	}
	e.drained = f.clientSeries.begin(cfg)
	e.wire = f.newWire(cfg, described, m)
	e.wire.current.Store(first)
	if before != nil {
		e.wire.before = before.identity
	}
	defer func() {
		if err != nil {
			e.wire.close()
		}
	}()
	health := newHealth(f.opts.Health, e.wire, func(state State, err error) { m.health(e, state, err) }, func() { wake(m.denied) })
	e.wire.health = health
	if err := e.wire.probe(attempt); err != nil {
		return err
	}
	if described.Identity == "" {
		if e.identity, err = e.wire.settle(attempt); err != nil {
			return err
		}
	}
	e.inherit(before)
	connected, err := f.newCluster(cfg, &http.Client{Transport: e.wire, Timeout: cfg.Timeout}, e, health, described)
	if err != nil {
		return err
	}
	e.cluster = newRotatingCluster(connected, cfg)
	f.serve(e, health, m.news)
	if !e.cluster.GetCache().WaitForCacheSync(attempt) {
		return fmt.Errorf("starting the cache: %w", context.Cause(attempt))
	}
	return nil
}

// newWire returns the wire for one engagement. It has no generation yet.
func (f *Fleet) newWire(cfg *rest.Config, described Member, m *member) *wire {
	w := &wire{most: f.opts.MaxResponseBytes, ready: m.measured.tally.timed(prober(cfg))}
	if described.Identity == "" {
		w.identify = identifier(cfg)
	}
	return w
}

// identifyCluster reads the identity of a cluster that the provider made, unless the provider says it. Where it cannot be
// read, it is unknown: whether such a cluster can be reached is the provider's business.
func (e *Engagement) identifyCluster(attempt context.Context) {
	if e.identity != "" {
		return
	}
	if e.asked = e.cluster.GetAPIReader(); e.asked != nil {
		e.identity, _ = ReadIdentity(attempt, e.asked)
	}
}

// usable returns a copy of a member's config as the fleet uses it.
func (f *Fleet) usable(described Member) *rest.Config {
	cfg := rest.CopyConfig(described.Config)
	f.opts.RESTConfig(described, cfg)
	if cfg.QPS == 0 {
		cfg.QPS = -1 // client-go's default of five requests a second would make a fleet crawl
	}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return noRedirects{rt} })
	return cfg
}

// serve runs what the engagement needs, on its context, until it ends.
func (f *Fleet) serve(e *Engagement, health *health, news chan<- struct{}) {
	probed := health.watch(e.ctx)
	e.background.Go(func() {
		defer e.wire.close()
		defer func() {
			<-e.ctx.Done()
			probed()
		}()
		if err := e.cluster.Start(e.ctx); err != nil && e.ctx.Err() == nil {
			f.opts.Logger.Error(err, "The member's cache has stopped", "cluster", e.name)
			health.report(Unreachable, err)
			e.end(err)
			wake(news)
		}
	})
}

func (f *Fleet) newCluster(cfg *rest.Config, httpClient *http.Client, e *Engagement, h *health, described Member) (cluster.Cluster, error) {
	log := f.opts.Logger.WithValues("cluster", e.name)
	options := append([]cluster.Option{func(o *cluster.Options) {
		o.Scheme = f.opts.Scheme
		o.HTTPClient = httpClient
		o.Logger = log
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.MapperProvider = func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
			return newRESTMapper(e.ctx, cfg, httpClient, &f.groups)
		}
	}}, f.opts.ClusterOptions(described)...)
	options = append(options, func(o *cluster.Options) {
		wrapNewCache(o, e)
		f.wrapNewInformer(o, e, h)
	})
	return cluster.New(cfg, options...)
}

// wrapNewCache has the cluster's cache say when a kind cannot be listed.
func wrapNewCache(o *cluster.Options, e *Engagement) {
	newCache := o.NewCache
	if newCache == nil {
		newCache = cache.New
	}
	o.NewCache = func(cfg *rest.Config, opts cache.Options) (cache.Cache, error) {
		c, err := newCache(cfg, opts)
		if err != nil {
			return nil, err
		}
		return &candidCache{Cache: c, scheme: opts.Scheme, name: e.name, kinds: e.kinds, informers: &e.informers}, nil
	}
}

// wrapNewInformer makes the member's informers retry by themselves.
func (f *Fleet) wrapNewInformer(o *cluster.Options, e *Engagement, h *health) {
	inner := o.Cache.NewInformer
	switch {
	case inner != nil:
	case o.Cache.DefaultWatchErrorHandler != nil: // the fleet's informers take none
		inner = toolscache.NewSharedIndexInformer
	default:
		inner = newInformer
	}
	scheme := o.Scheme
	o.Cache.NewInformer = func(
		lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		gvk, err := apiutil.GVKForObject(obj, scheme)
		if err != nil {
			gvk = obj.GetObjectKind().GroupVersionKind()
		}
		made := inner(&retrying{
			ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw),
			gvk:                      gvk, kinds: e.kinds, restored: h.isRestored,
			most: f.opts.MaxRetryPeriod, log: f.opts.Logger.WithValues("cluster", e.name), wire: e.wire,
		}, obj, resync, indexers)
		own, _ := made.(*informer)
		if key, err := keyOf(obj, scheme); err == nil {
			e.informers.add(key, own)
		}
		return made
	}
}

// prober returns a function that asks the API server whether it is ready.
func prober(cfg *rest.Config) func(context.Context, http.RoundTripper) error {
	return func(ctx context.Context, over http.RoundTripper) error {
		_, err := ask(ctx, cfg, over, "/readyz", "*/*")
		// One that forbids the path, or does not know it, has been reached all the same.
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// addIndexes gives a new engagement the field indexes, before anyone can use it. A kind that fails does not hold the
// member up: its index is added later.
func (f *Fleet) addIndexes(attempt context.Context, e *Engagement) error {
	added := make(chan struct{})
	pending := f.allIndexes()
	e.background.Go(func() {
		for _, i := range pending {
			if e.addIndexOnce(i) != nil {
				e.background.Go(func() { f.addIndex(e, i) })
			}
		}
		close(added)
	})
	select {
	case <-added:
		return nil
	case <-attempt.Done():
		return fmt.Errorf("adding field indexes: %w", context.Cause(attempt))
	}
}

func notSyncedMessage(kinds map[string]string) string {
	lines := make([]string, 0, len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, kind+": "+kinds[kind])
	}
	return strings.Join(lines, "; ")
}
