package dependents

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Reconciler keeps the dependents that owners of type T have in other clusters as they are desired. It is set up once, by
// [Reconciler.SetupWithManager], and not changed after that. The functions may be called by several workers at once.
type Reconciler[T client.Object] struct {
	// Fleet is the name of the installation, see mcowner.Reference. Required, a DNS label.
	Fleet string

	// Name is that of the controller, in references, finalizers, events, metrics and as the field manager. It must stay
	// the same for as long as there are dependents. Required, a DNS label.
	Name string

	// OwnersIn says where owners are watched, and DependentsIn where dependents are. Default: in every member.
	OwnersIn, DependentsIn Clusters

	// Kinds are those of the dependents, such as &appsv1.Deployment{}. Dependents of other kinds are refused. Do not take
	// one away while there are dependents of it. Required.
	Kinds []client.Object

	// Namespaces are where dependents may be, for a controller that may list in these alone. Default: in all.
	Namespaces []string

	// Targets returns the clusters that the owner is to have dependents in; mcreconcile.LocalCluster may be one. It is
	// called again when the owner changes, and when a member joins, leaves, or gets other labels. An error is returned by
	// the reconcile, and changes nothing. Default: every member that DependentsIn names.
	Targets func(ctx context.Context, owner T) ([]mcreconcile.ClusterName, error)

	// Desired returns the dependents that the owner is to have in one cluster, and the fields that they are to have: other
	// fields are left to others. They are applied in this order. Dependents that it does not return are deleted. An error
	// shows in the [Result] of the cluster, and nothing is deleted there. It is called for several clusters at once, so it
	// must not change the owner. Required.
	Desired func(ctx context.Context, owner T, target Target) ([]client.Object, error)

	// Status is given what came of it, ordered by cluster, and writes to the status of the owner, which is stored if that
	// changed anything. It is called while the owner is being deleted too. Default: the status is left alone.
	Status func(ctx context.Context, owner T, results []Result) error

	// User returns the user in whose name the dependents of owners of a cluster are written, so that the rights of that
	// user decide what these owners may have; empty for the controller's own. The controller needs the right to
	// impersonate the user. Reading is always done in its own name. Default: nobody is impersonated.
	User func(origin mcreconcile.ClusterName) string

	// ReleaseAfter is how long a member that is not in the fleet holds up the deletion of owners that may have dependents
	// in it, from when this process has first missed it. Default: for ever. A member that is in the fleet and cannot be
	// reached always does. Dependents that were left are removed by the collector if the member comes back.
	ReleaseAfter time.Duration

	// Timeout bounds each request to a cluster. Default: 10 seconds.
	Timeout time.Duration

	// Sweep says how dependents are collected whose owner is gone. Default: every minute.
	Sweep Sweep
}

// Clusters say where something is. The zero value stands for every member of the fleet.
type Clusters struct {
	// Local includes the local cluster. Alone, it stands for nothing else.
	Local bool
	// Members includes the members that it matches. labels.Everything() matches all.
	Members labels.Selector
}

// Target is one cluster that an owner is to have dependents in.
type Target struct {
	// Cluster is its name, and Labels are those of the member.
	Cluster mcreconcile.ClusterName
	Labels  map[string]string
	// Dependents are those that the owner has there now, as last seen.
	Dependents []client.Object
}

// Result is what came of one cluster.
type Result struct {
	Cluster mcreconcile.ClusterName

	// Targeted says whether the owner is to have dependents there. If not, they are being removed.
	Targeted bool

	// Dependents are those of Desired that are there, as last seen: of the types of Kinds, and with their status. They
	// may be a little older than what was just applied.
	Dependents []client.Object

	// Err says what keeps the cluster from being as desired. It is nil if nothing does. With errors.As it may be a
	// fleet.StateError if the cluster is not ready, a [ConflictError], or an error of the API server.
	Err error
}

// ConflictError says that an object that is to be a dependent is there, and belongs to somebody else or to nobody. It is
// left alone. The owner is reconciled again after some seconds, in case the object is gone.
type ConflictError struct {
	Cluster mcreconcile.ClusterName
	// Object names it, such as "Deployment default/nginx".
	Object string
	// Why says to whom it belongs.
	Why error
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s of cluster %q is not this owner's, and is left alone: %v", e.Object, e.Cluster, e.Why)
}

// Unwrap returns Why.
func (e *ConflictError) Unwrap() error { return e.Why }

// SetupWithManager adds a controller to the manager that runs the Reconciler, and a [Collector]. more may add to the
// controller: options, predicates, watches.
func (r *Reconciler[T]) SetupWithManager(mgr mcmanager.Manager, more ...func(*mcbuilder.Builder)) error {
	if err := r.validate(); err != nil {
		return fmt.Errorf("setting up controller %q: %w", r.Name, err)
	}
	return setUp(mgr, r.config(), more)
}

func (r *Reconciler[T]) validate() error {
	var errs []error
	for field, name := range map[string]string{"Fleet": r.Fleet, "Name": r.Name} {
		if len(validation.IsDNS1123Label(name)) > 0 {
			errs = append(errs, fmt.Errorf("%s is %q, and must be a DNS label", field, name))
		}
	}
	if len(r.Kinds) == 0 || r.Desired == nil {
		errs = append(errs, errors.New("the fields Kinds and Desired are required"))
	}
	return errors.Join(errs...)
}

// config is the Reconciler without its type parameter.
func (r *Reconciler[T]) config() config {
	c := config{
		fleet: r.Fleet, name: r.Name, ownersIn: r.OwnersIn, dependentsIn: r.DependentsIn, protos: r.Kinds,
		namespaces: r.Namespaces, user: r.User, releaseAfter: r.ReleaseAfter, requestTimeout: r.Timeout, sweep: r.Sweep,
		newOwner: func() client.Object { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }, //nolint:forcetypeassert // it is made of T
		desired: func(ctx context.Context, owner client.Object, target Target) ([]client.Object, error) {
			return r.Desired(ctx, owner.(T), target) //nolint:forcetypeassert // newOwner has made it
		},
	}
	if r.Targets != nil {
		c.targets = func(ctx context.Context, owner client.Object) ([]mcreconcile.ClusterName, error) {
			return r.Targets(ctx, owner.(T)) //nolint:forcetypeassert // newOwner has made it
		}
	}
	if r.Status != nil {
		c.status = func(ctx context.Context, owner client.Object, results []Result) error {
			return r.Status(ctx, owner.(T), results) //nolint:forcetypeassert // newOwner has made it
		}
	}
	return c
}

type config struct {
	fleet, name            string
	ownersIn, dependentsIn Clusters
	protos                 []client.Object
	namespaces             []string
	newOwner               func() client.Object
	targets                func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) // may be nil
	desired                func(context.Context, client.Object, Target) ([]client.Object, error)
	status                 func(context.Context, client.Object, []Result) error // may be nil
	user                   func(mcreconcile.ClusterName) string                 // may be nil
	releaseAfter           time.Duration
	requestTimeout         time.Duration
	sweep                  Sweep
}
