package dependents

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// watches are those of dependents: of the kinds that owners have, or are to have, in a cluster.
type watches struct {
	fleet, manager string
	indexName      string
	ledger         *ledger
	members        *mcsource.TypedOnDemand[work]
	local          controller.TypedController[work] // set once it is built
	indexed        remote.PerEngagement[*indexes]
	absent         remote.PerEngagement[*absences]
	elsewhere      *visitWatches
	placing        func(owner mcreconcile.Request, in mcreconcile.ClusterName) work
	isOthers       func(mcreconcile.ClusterName) bool
	next           nextEngagement

	mu      sync.Mutex // guards what follows
	locally map[schema.GroupVersionKind]bool
	wanted  map[watchKey]*watched
	over    map[watchKey]remote.Kind // what was watched in an engagement that is over, until it is asked for or released in the next
}

type watchKey struct {
	in   mcreconcile.ClusterName
	kind schema.GroupVersionKind
}

// watched is a kind that is watched in a member, or was until lately.
type watched struct {
	at      remote.Session
	kind    remote.Kind
	asked   time.Time // when work was last done that needs it
	idle    bool      // nobody needed it when it was last looked
	unwatch bool      // it is not watched any more, and the member's cache may have it still
}

func newWatches(fleet, manager string, members *mcsource.TypedOnDemand[work], l *ledger) *watches {
	return &watches{
		fleet: fleet, manager: manager, indexName: "owner." + manager + "." + fleet, ledger: l, members: members,
		locally: map[schema.GroupVersionKind]bool{}, wanted: map[watchKey]*watched{}, over: map[watchKey]remote.Kind{},
		next: noneComes,
	}
}

// ensure watches a kind in the cluster of a reconcile.
func (w *watches) ensure(ctx context.Context, at remote.Session, k remote.Kind) error {
	if at.Guest != nil {
		return w.elsewhere.ensure(ctx, at, k)
	}
	each := mcsource.TypedKind(k.NewObject(), w.handler(k))
	if at.Name() == mcreconcile.LocalCluster {
		return w.ensureLocally(ctx, at, k, each)
	}
	w.ask(at, k) // before it is watched, so that it is not ended in between
	return w.members.Watch(ctx, k.String(), each)
}

// ask notes that a kind is needed in a member, unless that is connected anew since: the next connection may be noted already.
func (w *watches) ask(at remote.Session, k remote.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.Engagement.Context().Err() != nil {
		return
	}
	key := watchKey{at.Name(), k.GroupVersionKind}
	is := w.wanted[key]
	if is == nil {
		is = &watched{}
		w.wanted[key] = is
	}
	is.at, is.kind, is.asked, is.unwatch = at, k, time.Now(), false
}

func (w *watches) ensureLocally(ctx context.Context, at remote.Session, k remote.Kind, each mcsource.TypedSource[work]) error {
	w.mu.Lock()
	begun := w.locally[k.GroupVersionKind]
	w.locally[k.GroupVersionKind] = true
	w.mu.Unlock()
	if begun {
		return nil
	}
	src, err := each.ForCluster(ctx, mcreconcile.LocalCluster, at.Cluster)
	if err == nil {
		err = w.local.Watch(src)
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.locally, k.GroupVersionKind)
		return fmt.Errorf("watching %s in the local cluster: %w", k.GroupKind(), err)
	}
	return nil
}

// isWatched reports whether a kind is watched in a cluster.
func (w *watches) isWatched(in mcreconcile.ClusterName, kind schema.GroupVersionKind) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in == mcreconcile.LocalCluster {
		return w.locally[kind]
	}
	is := w.wanted[watchKey{in, kind}]
	return is != nil && !is.unwatch && is.at.Engagement.Context().Err() == nil
}

// kinds returns the kinds that are watched in any cluster.
func (w *watches) kinds() map[schema.GroupVersionKind]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	kinds := maps.Clone(w.locally)
	for key, is := range w.wanted {
		if !is.unwatch {
			kinds[key.kind] = true
		}
	}
	return kinds
}

// handler maps an object of a kind to the work on its owners, and to what waits for it to be gone.
func (w *watches) handler(k remote.Kind) mchandler.TypedHandlerFunc[client.Object, work] {
	return func(in mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, work] {
		return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []work {
			return w.newsOf(in, k, client.ObjectKeyFromObject(obj), w.ownersOf(k, obj, in))
		})
	}
}

// newsOf returns the work on an object of which there is news: for those of its owners that are this replica's, and for what waits for it.
func (w *watches) newsOf(in mcreconcile.ClusterName, k remote.Kind, name types.NamespacedName, owners []mcreconcile.Request) (all []work) {
	for _, owner := range w.ledger.waitingFor(dependentKey{cluster: in, kind: k.GroupKind(), name: name}) {
		all = append(all, w.placing(owner, in))
	}
	for _, owner := range owners {
		if !w.isOthers(owner.ClusterName) {
			w.ledger.saw(owner, in, k.GroupVersionKind)
			all = append(all, w.placing(owner, in))
		}
	}
	return all
}

// ownersOf returns the owners of an object that are this controller's, whichever replica works on them.
func (w *watches) ownersOf(k remote.Kind, obj client.Object, in mcreconcile.ClusterName) (owners []mcreconcile.Request) {
	shared := k.GroupKind() == namespaceKind
	references, err := k.References(obj, mcowner.ClusterID{Name: in})
	if err != nil {
		return nil // what cannot be read is nobody's
	}
	for _, r := range references {
		if (r.Controller || shared) && (r.Fleet == w.fleet && r.Manager == w.manager || r.Fleet == "") {
			owners = append(owners, r.Request())
		}
	}
	return owners
}
