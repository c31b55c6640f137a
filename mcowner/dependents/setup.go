package dependents

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const defaultTimeout = 10 * time.Second

func setUp(mgr mcmanager.Manager, cfg config, more []func(*mcbuilder.Builder)) error {
	c, err := newController(mgr, cfg)
	if err != nil {
		return fmt.Errorf("setting up controller %q: %w", cfg.name, err)
	}
	own := func(r mcowner.Reference) bool { return r.Fleet == c.fleet && r.Manager == c.name }
	b := mcbuilder.ControllerManagedBy(mgr).Named(c.name).WithOptions(mcbuilder.Options{RateLimiter: retries()}).
		For(c.newOwner(), append(c.ownersIn.watch(), mcbuilder.WithPredicates(c.deletions.predicate()))...).
		WatchesRawSource(&members{fleet: mgr.GetFleet(), memory: c.memories, name: c.name})
	for _, k := range c.kinds {
		b = b.Owns(k.proto, append(c.dependentsIn.watch(), mcbuilder.AcrossClusters(own))...).
			Watches(k.proto, mchandler.EnqueueRequestsAcrossClusters(c.waitingFor(k)), c.dependentsIn.watch()...)
	}
	for _, add := range more {
		add(b)
	}
	if err := b.Complete(c); err != nil {
		return err
	}
	return mgr.Add(c.collector())
}

// retries limits the pause of owners that cannot be served to a minute: what is wrong in another cluster is often put
// right there, and nobody tells.
func retries() workqueue.TypedRateLimiter[mcreconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](100*time.Millisecond, time.Minute)
}

// waitingFor maps an object of a kind to the owners that wait for it to be gone.
func (c *controller) waitingFor(k kind) mchandler.MapFunc {
	return func(_ context.Context, in mcreconcile.ClusterName, obj client.Object) []mcreconcile.Request {
		return c.memories.waitingFor(obstacle{cluster: in, kind: k.gvk.GroupKind(), name: client.ObjectKeyFromObject(obj)})
	}
}

func newController(mgr mcmanager.Manager, cfg config) (*controller, error) {
	if cfg.requestTimeout <= 0 {
		cfg.requestTimeout = defaultTimeout
	}
	all := &access{mgr: mgr, who: cfg.name, timeout: cfg.requestTimeout, known: &Identities{Manager: mgr}}
	kinds, err := kindsOf(cfg.protos, mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if _, ok := k.proto.(*metav1.PartialObjectMetadata); ok {
			return nil, errors.New("the field Kinds has kinds of whole objects, not of their metadata")
		}
	}
	owners, err := kindsOf([]client.Object{cfg.newOwner()}, mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	return &controller{
		config: cfg, access: all, owner: owners[0], kinds: kinds, record: newRecord(cfg.fleet, cfg.name),
		writers: writers{user: cfg.user}, memories: newMemory(), deletions: &deletions{},
		proof: &proof{access: all, owners: owners},
	}, nil
}

// collector returns the collector of the controller's own dependents.
func (c *controller) collector() *Collector {
	sweep := c.sweep
	if sweep.Timeout <= 0 {
		sweep.Timeout = c.timeout
	}
	return &Collector{
		Manager: c.mgr, Fleet: c.fleet, Owners: []client.Object{c.owner.proto}, OwnersIn: c.ownersIn, Kinds: c.protos,
		DependentsIn: c.dependentsIn, Namespaces: c.namespaces, Name: c.name, Sweep: sweep,
		manager: c.name, user: c.user,
	}
}
