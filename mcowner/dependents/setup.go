package dependents

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/sweep"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// defaultWorkers is how many clusters are worked on at once. That is mostly waiting for their API servers.
const defaultWorkers = 16

func setUp(mgr mcmanager.Manager, cfg config, more []func(*mcbuilder.Builder)) error {
	c, err := newController(mgr, cfg)
	if err != nil {
		return fmt.Errorf("setting up controller %q: %w", cfg.name, err)
	}
	if err := errors.Join(cfg.checkSlices(mgr), cfg.checkStatus(mgr, c.owner.GroupVersionKind)); err != nil {
		return fmt.Errorf("setting up controller %q: %w", cfg.name, err)
	}
	owners := mcbuilder.ControllerManagedBy(mgr).Named(c.cfg.name).WithOptions(mcbuilder.Options{RateLimiter: retries[mcreconcile.Request]()}).
		For(c.cfg.newOwner(), append(watchIn(c.cfg.ownersIn), mcbuilder.WithPredicatesIn(c.seesOwners))...).
		WatchesRawSource(c.owners)
	if c.cfg.slices != nil {
		w := sliceWatch{c}
		owners.WatchesMetadata(w.proto(), w.in, watchIn(c.cfg.ownersIn)...)
	}
	for _, add := range more {
		add(owners)
	}
	if err := owners.Complete(planner{c}); err != nil {
		return err
	}
	c.watches.local, err = mcbuilder.TypedControllerManagedBy[work](mgr).Named(c.cfg.name + "-placements").
		WithOptions(workerOptions(cfg)).WithQueue(workQueue()).
		WithLogConstructor(func(w *work) logr.Logger {
			log := mgr.GetLogger().WithValues("controller", c.cfg.name+"-placements")
			if w != nil {
				log = log.WithValues("owner", w.owner.String())
			}
			return log
		}).
		WatchesRawSource(c.watches.members).WatchesRawSource(c.works).WatchesRawSource(members{c}).WatchesRawSource(c.watches.elsewhere).
		Build(worker{c})
	if err != nil {
		return err
	}
	if err := mgr.Add(c.onReplicas(c.endIdleWatches)); err != nil || cfg.retire == LeaveAsIs || cfg.retire == LeaveReleased {
		return err // once it is retired, nothing is deleted any more: nobody sees how owners are
	}
	return mgr.Add(c.collector)
}

// seesOwners returns the predicates of owners for one cluster. Two may have owners of the same UID.
func (c *engine) seesOwners(in mcreconcile.ClusterName, cl cluster.Cluster) []predicate.Predicate {
	return []predicate.Predicate{c.deletions.predicate(in, cl), c.ledger.predicate(in)}
}

// watchIn returns the options of a watch in these clusters.
func watchIn(c mcowner.Clusters) []mcbuilder.WatchOption {
	var opts []mcbuilder.WatchOption
	if c.Local {
		opts = append(opts, mcbuilder.InLocalCluster)
	}
	if c.HasMembers() {
		opts = append(opts, mcbuilder.InMembers(c.Members))
	}
	return opts
}

// retries limits the pause of what cannot be done: what is wrong in another cluster is often put right there, and nobody
// tells.
func retries[request comparable]() workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](100*time.Millisecond, mostPause)
}

// namespaceOfState returns the namespace of the local cluster in which something can be noted: that of the program is in the file. The error
// wraps errNoNamespace if nothing says it.
func (c config) namespaceOfState(file string) (string, error) {
	if c.stateNamespace != "" {
		return c.stateNamespace, nil
	}
	namespace, err := inpod.Namespace(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", errNoNamespace, err)
	}
	return namespace, err
}

// workerOptions are those of the controller that does the work.
func workerOptions(cfg config) controller.TypedOptions[work] {
	return controller.TypedOptions[work]{RateLimiter: workRetries{retries[work]()}, MaxConcurrentReconciles: cfg.atOnce()}
}

// workRetries limits the pause of a wait that others end, in other replicas: a member that leaves is held up by it.
type workRetries struct {
	workqueue.TypedRateLimiter[work]
}

// mostHold is the longest pause between looks whether a member that leaves is still needed.
const mostHold = 2 * time.Second

// When implements workqueue.TypedRateLimiter.
func (r workRetries) When(w work) time.Duration {
	pause := r.TypedRateLimiter.When(w)
	if w.task == hold {
		pause = min(pause, mostHold)
	}
	return pause
}

func (c config) atOnce() int {
	if c.workers <= 0 {
		return defaultWorkers
	}
	return c.workers
}

// workQueue are the options of its queue. Owners' clusters take turns at each cluster, so that many owners in one do not delay
// those in another. A cluster that hangs holds no more than its share of the workers, also where it is visited.
func workQueue() mcqueue.Options[work] {
	return mcqueue.Options[work]{
		Flow:   func(w work) string { return string(w.owner.ClusterName) },
		Target: func(w work) mcreconcile.ClusterName { return w.in },
	}
}

func newController(mgr mcmanager.Manager, cfg config) (*engine, error) {
	kinds, err := remote.KindsOf(cfg.protos, mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if _, ok := k.Proto.(*metav1.PartialObjectMetadata); ok {
			return nil, errors.New("the field Kinds has kinds of whole objects, not of their metadata")
		}
		if !record.IsKind(k.GroupVersionKind) {
			return nil, fmt.Errorf("the field Kinds has %s, which is no name that an API server has for a kind", k.GroupVersionKind)
		}
	}
	owners, err := remote.KindsOf([]client.Object{cfg.newOwner()}, mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("finding the kind of owners, which the field Owner says where their type does not: %w", err)
	}
	l, access := newLedger(), remote.NewAccess(mgr, cfg.name, cfg.requestTimeout, cfg.byName)
	c := &engine{
		cfg: cfg, access: access, owner: owners[0], kinds: kinds,
		keys: record.NewKeys(cfg.fleet, cfg.name), writers: remote.Writers{Access: access, User: cfg.user}, ledger: l, deletions: &deletions{},
		watches: newWatches(cfg.fleet, cfg.name, mcsource.NewTypedOnDemand[work](mgr.GetFleet()), l),
		owners:  &feed[mcreconcile.Request]{name: "owners of dependents"}, works: &feed[work]{name: "work of owners"},
	}
	c.deletions.mayLeave, c.deletions.isOthers = c.mayLeave, c.access.IsOthers
	c.watches.placing, c.watches.isOthers = c.placing, c.access.IsOthers
	c.watches.next = nextIn(mgr.GetFleet())
	c.watches.elsewhere = newVisitWatches(c)
	c.tombs = &tombs{access: c.access, client: mgr.GetClient(), reader: mgr.GetAPIReader(), name: cfg.name + "." + cfg.fleet}
	c.tombs.namespace = func() (string, error) { return cfg.namespaceOfState(inpod.NamespaceFile) }
	if c.collector, err = c.newCollector(); err != nil {
		return nil, err
	}
	return c, nil
}

// newCollector returns the collector of the controller's own dependents.
func (c *engine) newCollector() (*sweep.Sweeper, error) {
	pace := sweep.Pace(c.cfg.sweep)
	if pace.Timeout <= 0 {
		pace.Timeout = c.access.Timeout
	}
	kinds := c.cfg.protos
	if c.cfg.createNamespaces && !c.isFixed(namespaceKind) {
		kinds = append(slices.Clone(kinds), c.namespaces().Proto)
	}
	return sweep.New(sweep.Options{
		Manager: c.access.Manager, Fleet: c.cfg.fleet, Controller: c.cfg.name, Owners: []client.Object{c.owner.Proto}, OwnersIn: c.cfg.ownersIn,
		Kinds: kinds, MoreKinds: c.moreKindsAfter, DependentsIn: c.cfg.dependentsIn, Namespaces: c.cfg.namespaces, Name: c.cfg.name, Pace: pace,
		User: c.cfg.user, ByName: c.cfg.byName, OwnersDecommissioned: c.cfg.decommissioned,
		Watched: c.watches.isWatched, Found: c.found, Stray: c.stray, Unwanted: c.unwanted, Keep: c.isToStay, Placed: c.isPlaced,
		KeepUnseen: c.cfg.onOwnersLeaving != LeaveDeleted,
	})
}

func (c *engine) isFixed(kind schema.GroupKind) bool {
	return slices.ContainsFunc(c.kinds, func(fixed remote.Kind) bool { return fixed.GroupKind() == kind })
}
