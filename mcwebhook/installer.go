package mcwebhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

const (
	// controllerName is that of the installer in logs and metrics.
	controllerName = "webhooks"
	// readsAtOnce is how many members are asked side by side what they have.
	readsAtOnce = 16
	// readAgain is how often the file of an authority is read that is not the program's own.
	readAgain = 10 * time.Minute
)

// installer keeps the configurations in the members. It has one request for each.
type installer struct {
	mgr   mcmanager.Manager
	opts  Options
	kinds []*kind
	hooks *registry
	store *store

	mu      sync.Mutex // guards failing
	failing map[mcreconcile.ClusterName]string
	without *prometheus.Desc
	taken   takeovers
}

func newInstaller(mgr mcmanager.Manager, opts Options, kinds []*kind, hooks *registry, s *store) *installer {
	return &installer{
		mgr: mgr, opts: opts, kinds: kinds, hooks: hooks, store: s, failing: map[mcreconcile.ClusterName]string{},
		without: prometheus.NewDesc("fleet_runtime_webhooks_not_installed",
			"Is 1 for a cluster in which webhooks could not be installed as they are to be, by reason.",
			[]string{"cluster", "reason"}, prometheus.Labels{"name": opts.Name}),
	}
}

// setUp adds the controller. It runs for each member on the replica that works on it.
func (i *installer) setUp() error {
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == i.opts.Name })
	b := mcbuilder.ControllerManagedBy(i.mgr).Named(controllerName).
		WithOptions(mcbuilder.Options{SkipNameValidation: new(true)}).
		WatchesRawSource(mcsource.Clusters(i.mgr.GetFleet(), i.changed)).
		WatchesRawSource(source.TypedFunc[mcreconcile.Request](i.followStore))
	for _, k := range i.kinds {
		b = b.Watches(k.watched(), mchandler.EnqueueRequestForObject, mcbuilder.InMembers(nil), mcbuilder.OnlyMetadata,
			mcbuilder.WithPredicates(ours, predicate.Funcs{UpdateFunc: otherContents}))
	}
	return b.Complete(mcreconcile.Func(i.reconcile))
}

// otherContents reports whether an event is of more than metadata.
func otherContents(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}

// request is the one of a member. It is that of its configurations, too.
func (i *installer) request(name mcreconcile.ClusterName) mcreconcile.Request {
	req := mcreconcile.Request{ClusterName: name}
	req.Name = i.opts.Name
	return req
}

// changed returns the request of a member that is another than before.
func (i *installer) changed(_ context.Context, status fleet.Status) []mcreconcile.Request {
	if !status.Engaged() {
		i.note(status.Name, nil)
		i.taken.forget(status.Name)
		return nil
	}
	return []mcreconcile.Request{i.request(status.Name)}
}

// followStore brings requests for all members when the keys are others, until ctx ends.
func (i *installer) followStore(ctx context.Context, queue workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	var ended atomic.Bool
	context.AfterFunc(ctx, func() { ended.Store(true) })
	i.store.follow(func() {
		for _, status := range i.mgr.GetFleet().List(nil) {
			if status.Engaged() && !ended.Load() {
				queue.Add(i.request(status.Name))
			}
		}
	})
	return nil
}

// check returns an error for what is registered and can be installed nowhere.
func (i *installer) check() error {
	paths := i.hooks.paths()
	for _, k := range i.kinds {
		for _, h := range k.hooks {
			delete(paths, h.path)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return fmt.Errorf("webhooks for members are registered at %s, and no configuration in mcwebhook's Options.Configurations names that path",
		strings.Join(slices.Sorted(maps.Keys(paths)), ", "))
}

// reconcile installs what a member is to have, or takes it away from one that leaves.
func (i *installer) reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	var err error
	if mcreconcile.Leaving(ctx) {
		err = i.remove(ctx, req.ClusterName)
	} else {
		err = i.install(ctx, req.ClusterName)
	}
	if ctx.Err() == nil {
		i.note(req.ClusterName, err)
	}
	if err != nil || i.opts.ownAuthority() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: readAgain}, nil
}

func (i *installer) install(ctx context.Context, name mcreconcile.ClusterName) error {
	e, err := i.mgr.GetFleet().Engagement(name)
	if err != nil {
		return err
	}
	m := i.store.now.Load()
	if m == nil || m.id == "" {
		return nil // the request comes again with the keys
	}
	errs := make([]error, 0, len(i.kinds)) // one kind that cannot be installed does not hold the other
	for _, k := range i.kinds {
		wanted, err := i.wanted(k, m, caller{name: name, identity: e.Identity()})
		if err != nil {
			return err
		}
		at := i.at(ctx, k, m, name)
		if len(wanted) == 0 {
			err = at.remove(ctx)
		} else {
			err = at.install(ctx, wanted)
		}
		if err != nil {
			errs = append(errs, concealed{
				fmt.Errorf("installing the %s %s in cluster %q: %w", k.Kind, i.opts.Name, name, err), proofs(m, name, e.Identity()),
			})
		}
	}
	return errors.Join(errs...)
}

// at returns where a member that is reconciled has a kind.
func (i *installer) at(ctx context.Context, k *kind, m *material, name mcreconcile.ClusterName) place {
	cl := mcreconcile.ClusterFrom(ctx)
	return place{cl.GetAPIReader(), cl.GetClient(), k, i.opts.Name, claim{m.id, i.opts.URL, name}, &i.taken}
}

// wanted returns the webhooks of a kind that a member is to have.
func (i *installer) wanted(k *kind, m *material, c caller) ([]any, error) {
	bundle, err := i.opts.bundle(m)
	if err != nil {
		return nil, fmt.Errorf("reading what members are to trust: %w", err)
	}
	return k.webhooks(i.hooks.paths(), func(path string) string {
		c.hook = path
		return i.opts.URL + (&url.URL{Path: c.path(m.key)}).EscapedPath()
	}, bundle), nil
}

// remove takes away what a member has.
func (i *installer) remove(ctx context.Context, name mcreconcile.ClusterName) error {
	m := i.store.now.Load()
	if m == nil {
		m = &material{} // the URL tells what is this program's
	}
	errs := make([]error, 0, len(i.kinds))
	for _, k := range i.kinds {
		if err := i.at(ctx, k, m, name).remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("removing the %s %s: %w", k.Kind, i.opts.Name, err))
		}
	}
	return errors.Join(errs...)
}

// everywhere reports whether all Ready members have what they are to have with some material. Those of other replicas are asked too, and
// have it not if they cannot be reached from here.
func (i *installer) everywhere(ctx context.Context, m *material) bool {
	asked, ctx := errgroup.WithContext(ctx)
	asked.SetLimit(readsAtOnce)
	for _, status := range i.mgr.GetFleet().List(nil) {
		if status.State == fleet.Ready || status.State == fleet.NotOwned {
			asked.Go(func() error { return i.has(ctx, status, m) })
		}
	}
	return asked.Wait() == nil
}

var errLacks = errors.New("it has something else")

// has returns an error if a member has something else than it is to have.
func (i *installer) has(ctx context.Context, status fleet.Status, m *material) error {
	reader, identity, leave, err := i.reach(ctx, status)
	if err != nil && status.State == fleet.NotOwned {
		return err // the replica that owns it may reach it
	}
	if err != nil {
		return ctx.Err() // not Ready
	}
	defer leave()
	for _, k := range i.kinds {
		wanted, err := i.wanted(k, m, caller{name: status.Name, identity: identity})
		if err != nil {
			return err
		}
		live, err := place{reader: reader, kind: k, name: i.opts.Name}.get(ctx)
		if err != nil {
			return err
		}
		if len(wanted) > 0 && (live == nil || !isAs(live, wanted)) {
			return errLacks
		}
	}
	return nil
}

// reach returns what reads from a member, and which cluster that is.
func (i *installer) reach(ctx context.Context, status fleet.Status) (reader client.Reader, identity string, leave func(), err error) {
	if status.State == fleet.NotOwned {
		g, leave, err := i.mgr.GetFleet().SharedGuest(ctx, status.Name)
		if err != nil {
			return nil, "", nil, err
		}
		return g.Client(), g.Identity(), leave, nil
	}
	e, err := i.mgr.GetFleet().Engagement(status.Name)
	if err != nil {
		return nil, "", nil, err
	}
	return e.Cluster().GetAPIReader(), e.Identity(), func() {}, nil
}

// note keeps why a member does not have what it is to have.
func (i *installer) note(name mcreconcile.ClusterName, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		delete(i.failing, name)
		return
	}
	i.failing[name] = fleet.ReasonOf(err)
}

// Describe implements prometheus.Collector.
func (i *installer) Describe(descs chan<- *prometheus.Desc) { descs <- i.without }

// Collect implements prometheus.Collector.
func (i *installer) Collect(series chan<- prometheus.Metric) {
	i.mu.Lock()
	failing := maps.Clone(i.failing)
	i.mu.Unlock()
	for name, reason := range failing {
		if status, _ := i.mgr.GetFleet().Status(name); !status.Engaged() {
			continue // it was noted as the member went
		}
		series <- prometheus.MustNewConstMetric(i.without, prometheus.GaugeValue, 1, string(name), reason)
	}
}

// proofs are what errors about a member must not show.
func proofs(m *material, name mcreconcile.ClusterName, identity string) (texts []string) {
	for _, key := range m.keys() {
		texts = append(texts, caller{name: name, identity: identity}.proof(key))
	}
	return texts
}

// concealed is an error whose text has no keys. API servers show in theirs what they were sent.
type concealed struct {
	error

	texts []string
}

// Error implements error.
func (c concealed) Error() string {
	shown := c.error.Error()
	for _, text := range c.texts {
		shown = strings.ReplaceAll(shown, text, "(key)")
	}
	return shown
}

// Unwrap returns what errors.Is and errors.As look at. Its text is not to be shown.
func (c concealed) Unwrap() error { return c.error }
