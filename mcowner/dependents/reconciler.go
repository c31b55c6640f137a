package dependents

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
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

	// Owner says of which kind owners are, where T does not: for *unstructured.Unstructured. Nothing else of it counts.
	// Default: the kind of T.
	Owner T

	// OwnersIn says where owners are watched, and DependentsIn where dependents may be. Default: in every member.
	OwnersIn, DependentsIn mcowner.Clusters

	// Kinds are those of the dependents, such as &appsv1.Deployment{}. Required, unless there is MoreKinds.
	Kinds []client.Object

	// MoreKinds allows dependents of kinds that are not among Kinds, and are known only when they are desired. It returns an
	// error for one that is not allowed. Such dependents are read as unstructured objects. Default: none is allowed.
	MoreKinds func(schema.GroupVersionKind) error

	// Namespaces are where dependents may be, for a controller that may list in these alone. Default: in all.
	Namespaces []string

	// CreateNamespaces creates the namespaces of dependents where they are absent. Such a namespace is shared by the owners that
	// have dependents in it. When the last of them goes, it is deleted if it is proved to be empty of others, by listing all kinds
	// that there may be in it; otherwise it stays, as nobody's. A namespace that was created by others is left as it is. The
	// controller needs the right to get, list, watch, create, patch and delete namespaces, and to list whatever is to be proved
	// absent. It cannot be used with Namespaces. Default: what has no namespace shows the API server's error.
	CreateNamespaces bool

	// Targets returns the clusters that the owner is to have dependents in; mcreconcile.LocalCluster may be one. It is
	// called again when the owner changes, and when a member joins, leaves, or gets other labels. An error is returned by
	// the reconcile, and changes nothing. It must not choose by the state of members: those of other replicas are NotOwned
	// where replicas share them, and one that is not returned loses its dependents. Each of these replicas calls it, also for owners of others.
	// Default: every member that DependentsIn names.
	Targets func(ctx context.Context, owner T) ([]mcreconcile.ClusterName, error)

	// Desired returns the dependents that the owner is to have in one cluster, and the fields that they are to have: other
	// fields are left to others. They are applied in this order, or wave by wave, see [WaveAnnotation]. Once all are, dependents
	// that it does not return are deleted.
	// An error shows in the [Result] of the cluster, and nothing is deleted there. What is returned beside it is applied, up to the first
	// wave that is not of Namespaces and CRDs: what is missing may belong to any. Later waves wait. One that wraps [ErrWaiting] or
	// [ErrPending] says that nothing is wrong. It is tried again after pauses that grow to a minute. Desired is called when the owner is
	// changed by others than Status, and when something has happened in the cluster; for several clusters at once, so it must not change
	// the owner. Required.
	Desired func(ctx context.Context, owner T, target Target) ([]client.Object, error)

	// Status is given what came of it, ordered by cluster, and writes to the status of the owner, which is stored if that
	// changed anything. It is called while the owner is being deleted too. Results of many clusters are gathered for up to a
	// second. A kind that the local cluster serves without the status subresource is an error of the set-up, if owners are there; in
	// members, and for a type without a field Status, owners have an event that says so. Default: the status is left alone.
	Status func(ctx context.Context, owner T, results []Result) error

	// Rollout limits how many clusters of an owner are changed at once. Default: all are.
	Rollout Rollout

	// Policy says what is done about dependents where there is a choice. Annotations override it for single ones.
	Policy Policy

	// PolicyOf and RolloutOf return what holds for one owner, where its kind says so. While that makes no sense, an event says so, and what the
	// owner asked for before goes on, with the policies of then; nothing is done if that was before the program began. A Rollout does not matter to an owner that goes; where its Policy makes no sense, it waits, with its
	// dependents. Default: Policy and Rollout.
	PolicyOf  func(owner T) Policy
	RolloutOf func(owner T) Rollout

	// User returns the user in whose name the dependents of an owner are written, so that the rights of that user decide
	// what the owner may have; empty for the controller's own. The owner may be gone, so its name alone decides. The controller needs the right to
	// impersonate the user. Reading is always done in its own name. Where it panics, nothing is written, and an event says so. Default:
	// nobody is impersonated.
	User func(owner mcreconcile.Request) string

	// ReleaseAfter is how long a member that is not in the fleet holds up the deletion of owners that may have dependents
	// in it, from when this process has first missed it. Default: for ever, or until [GiveUpAnnotation] says otherwise. A
	// member that is in the fleet and cannot be reached always does. Dependents that were left are removed by the collector if
	// the member comes back, unless the owner was deleted with the policy Orphan.
	ReleaseAfter time.Duration

	// OnMemberLeaving says what becomes of dependents in a member that is about to leave, see fleet.Members. For those of owners that are
	// let go meanwhile, OnOwnersLeaving or Retire comes first, unless that leaves them as they are. Default: [LeaveAsIs].
	OnMemberLeaving LeavePolicy

	// OnOwnersLeaving says what becomes of the dependents of owners in a cluster that is not one of OwnersIn any more, or is about
	// to leave. The owners lose the finalizer. A cluster may have become one of these while the program did not run: if it is set,
	// also to [LeaveAsIs], or Retire is, owners are looked for in the other clusters when these are connected, which takes the right
	// to list them there. Default: as with LeaveAsIs, but owners are not looked for, and only those are found that have dependents.
	// Where replicas share the members, and OwnersIn names members, owners are looked for anyway. Nobody sees how owners are deleted
	// there: unless it is LeaveDeleted, the dependents of one that is gone stay.
	OnOwnersLeaving LeavePolicy

	// Retire ends the controller's work for good: owners lose the finalizer and what was noted on them, and dependents become what
	// it says. Where some are left, an annotation goes on to say so. The controller can be removed once no owner has the finalizer.
	// Default: it works.
	Retire LeavePolicy

	// OwnersDecommissioned are clusters of owners that are no more, for which nobody can be asked whether owners are there:
	// their dependents are removed by the collector. A cluster is told by its UID, which the references in its dependents have,
	// or by its name where they do not say it; one that is in the fleet is asked all the same. One that no provider has reported is
	// missed for a minute first.
	OwnersDecommissioned []mcowner.ClusterID

	// ByName allows clusters of which it cannot be told which they are, for want of the right to get the namespace
	// kube-system. Names alone count for these: if a name leads to another cluster one day, what is there is taken for what was
	// here. Default: such a cluster is not worked on, and its [Result] says why.
	ByName bool

	// StateNamespace is the namespace of the local cluster in which ConfigMaps remember owners with the policy Orphan that went, or
	// were let go, before their dependents could be released, such as in a cluster that was given up. It has to stay the same, or what
	// was noted to move with it. Default: the namespace that the program runs in.
	StateNamespace string

	// Slices says that what the controller notes of an owner's clusters is in objects of their own, for owners with many clusters.
	// Default: annotations of the owner have the clusters, which is enough for about 3000, and Status alone has what came of them.
	Slices *Slices

	// Workers is how many clusters are worked on at once, at most half of them for one cluster. Default: 16.
	Workers int

	// Timeout bounds each request to a cluster. Default: 10 seconds.
	Timeout time.Duration

	// Sweep says how dependents are collected whose owner is gone.
	Sweep orphans.Sweep

	paces paces
}

// Target is one cluster that an owner is to have dependents in.
type Target struct {
	// Cluster is its name, and Labels are those of the member.
	Cluster mcreconcile.ClusterName
	Labels  map[string]string
	// Home says that it is the cluster in which the owner is, by whichever name. It is not said where RESTMapper is nil.
	Home bool
	// Dependents are those that the owner has there now, as last seen: of the types of Kinds, or unstructured where the cluster serves
	// other versions of a kind alone. They are shared, and must not be changed.
	Dependents []client.Object
	// RESTMapper is that of the cluster, nil if only the kinds of what is returned count. It may ask the cluster. That a kind is not served
	// may have been so ten seconds ago.
	RESTMapper meta.RESTMapper
}

// SetupWithManager adds a controller to the manager that runs the Reconciler, and an orphans.Collector. more may
// add to the controller of the owners: options, predicates, watches.
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
	if len(r.Kinds) == 0 && r.MoreKinds == nil || r.Desired == nil {
		errs = append(errs, errors.New("the fields Kinds, or MoreKinds, and Desired are required"))
	}
	if r.CreateNamespaces && len(r.Namespaces) > 0 {
		errs = append(errs, errors.New("CreateNamespaces needs all namespaces, and Namespaces names some"))
	}
	errs = append(errs, r.Policy.validate(), r.Rollout.validate(), r.Slices.validate())
	for field, policy := range map[string]LeavePolicy{
		"OnMemberLeaving": r.OnMemberLeaving, "OnOwnersLeaving": r.OnOwnersLeaving, "Retire": r.Retire,
	} {
		errs = append(errs, oneOf(field, policy, LeaveAsIs, LeaveReleased, LeaveDeleted))
	}
	return errors.Join(errs...)
}

// config is the Reconciler without its type parameter. Panics of functions are their errors.
func (r *Reconciler[T]) config() config {
	c := config{
		fleet: r.Fleet, name: r.Name, ownersIn: r.OwnersIn, dependentsIn: r.DependentsIn, protos: r.Kinds,
		namespaces: r.Namespaces, user: r.User, releaseAfter: r.ReleaseAfter, requestTimeout: r.Timeout, sweep: r.Sweep,
		createNamespaces: r.CreateNamespaces, onMemberLeaving: r.OnMemberLeaving, onOwnersLeaving: r.OnOwnersLeaving,
		retire: r.Retire, decommissioned: r.OwnersDecommissioned, byName: r.ByName, workers: r.Workers, stateNamespace: r.StateNamespace, slices: r.Slices,
		paces:    r.paces,
		newOwner: r.newOwner,
		desired: func(ctx context.Context, owner client.Object, target Target) (all []client.Object, err error) {
			defer remote.Recovered(ctx, &err)
			all, err = r.Desired(ctx, owner.(T), target) //nolint:forcetypeassert // newOwner has made it
			return withoutNil(all, err)
		},
	}
	c.policyOf = func(ctx context.Context, owner client.Object) (Policy, error) {
		return r.policyOf(ctx, owner.(T)) //nolint:forcetypeassert // newOwner has made it
	}
	c.rolloutOf = func(ctx context.Context, owner client.Object) (Rollout, error) {
		return r.rolloutOf(ctx, owner.(T)) //nolint:forcetypeassert // newOwner has made it
	}
	if r.MoreKinds != nil {
		c.moreKinds = func(ctx context.Context, gvk schema.GroupVersionKind) (err error) {
			defer remote.Recovered(ctx, &err)
			return r.MoreKinds(gvk)
		}
	}
	if r.Targets != nil {
		c.targets = func(ctx context.Context, owner client.Object) (names []mcreconcile.ClusterName, err error) {
			defer remote.Recovered(ctx, &err)
			return r.Targets(ctx, owner.(T)) //nolint:forcetypeassert // newOwner has made it
		}
	}
	if r.Status != nil {
		c.status = func(ctx context.Context, owner client.Object, results []Result) (err error) {
			defer remote.Recovered(ctx, &err)
			return r.Status(ctx, owner.(T), results) //nolint:forcetypeassert // newOwner has made it
		}
	}
	return c
}

// errNil says that an object is desired that is none.
var errNil = errors.New("an object is desired that is nil")

// withoutNil drops objects that are nil, and makes an error of them.
func withoutNil(all []client.Object, err error) ([]client.Object, error) {
	isNil := func(obj client.Object) bool {
		v := reflect.ValueOf(obj)
		return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
	}
	if !slices.ContainsFunc(all, isNil) {
		return all, err
	}
	return slices.DeleteFunc(slices.Clone(all), isNil), errors.Join(err, errNil)
}

// policyOf returns the policy that holds for an owner.
func (r *Reconciler[T]) policyOf(ctx context.Context, owner T) (policy Policy, err error) {
	defer remote.Recovered(ctx, &err)
	policy = r.Policy
	if r.PolicyOf != nil {
		policy = r.PolicyOf(owner)
	}
	return policy, policy.validate()
}

// rolloutOf returns the rollout that holds for an owner.
func (r *Reconciler[T]) rolloutOf(ctx context.Context, owner T) (rollout Rollout, err error) {
	defer remote.Recovered(ctx, &err)
	rollout = r.Rollout
	if r.RolloutOf != nil {
		rollout = r.RolloutOf(owner)
	}
	return rollout, rollout.validate()
}

// newOwner returns an empty owner.
func (r *Reconciler[T]) newOwner() client.Object {
	owner := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) //nolint:forcetypeassert // it is made of T
	if !reflect.ValueOf(r.Owner).IsNil() {
		owner.GetObjectKind().SetGroupVersionKind(r.Owner.GetObjectKind().GroupVersionKind())
	}
	return owner
}

type config struct {
	fleet, name            string
	ownersIn, dependentsIn mcowner.Clusters
	protos                 []client.Object
	moreKinds              func(context.Context, schema.GroupVersionKind) error // nil if there are none
	namespaces             []string
	createNamespaces       bool
	newOwner               func() client.Object
	targets                func(context.Context, client.Object) ([]mcreconcile.ClusterName, error) // may be nil
	desired                func(context.Context, client.Object, Target) ([]client.Object, error)
	status                 func(context.Context, client.Object, []Result) error // may be nil
	policyOf               func(context.Context, client.Object) (Policy, error)
	rolloutOf              func(context.Context, client.Object) (Rollout, error)
	user                   func(mcreconcile.Request) string // may be nil
	releaseAfter           time.Duration
	onMemberLeaving        LeavePolicy
	onOwnersLeaving        LeavePolicy
	retire                 LeavePolicy
	decommissioned         []mcowner.ClusterID
	byName                 bool
	stateNamespace         string
	slices                 *Slices // may be nil
	workers                int
	requestTimeout         time.Duration
	sweep                  orphans.Sweep
	paces                  paces
}
