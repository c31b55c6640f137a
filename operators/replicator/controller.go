package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// name is that of the controller and of the installation, in references and as the field manager: it never changes.
const name = "replicator"

// controller says what Replicators ask for. That it is so is the work of a dependents.Reconciler.
type controller struct {
	namespace string        // that of what describes the members
	hub       client.Reader // from a cache, which has of sources those that may be used
	statuses  client.SubResourceWriter
	fleet     *fleet.Fleet
	kinds     kinds
	sources   []schema.GroupVersionKind
	decisions bool
	children  children
	sizes     sizes
}

func (c *controller) setUp(mgr mcmanager.Manager, middleware ...mcbuilder.Middleware) error {
	r := &dependents.Reconciler[*v1alpha1.Replicator]{
		Fleet: name, Name: name,
		OwnersIn:         mcowner.Clusters{Local: true},
		MoreKinds:        c.kinds.allow,
		CreateNamespaces: true,
		Targets:          c.targets,
		Desired:          c.desired,
		Status:           c.status,
		PolicyOf:         policyOf,
		RolloutOf:        rolloutOf,
		User:             userOf,
		Slices:           &dependents.Slices{},
	}
	return r.SetupWithManager(mgr, c.follow, func(b *mcbuilder.Builder) { b.WithMiddleware(middleware...) })
}

// userOf returns in whose name members are written to: the rights of that user there decide what Replicators of a namespace may have.
func userOf(owner mcreconcile.Request) string { return "fleet-runtime:replicator:" + owner.Namespace }

func policyOf(r *v1alpha1.Replicator) dependents.Policy {
	p := dependents.Policy{Keep: r.Spec.DeletionPolicy == v1alpha1.DeletionOrphan, Suspend: r.Spec.Suspend, ExistingNamespaces: !r.Spec.CreateNamespace}
	if r.Spec.Conflicts == v1alpha1.ConflictAdopt {
		p.Conflict = dependents.AdoptUnowned
	}
	if r.Spec.Change == v1alpha1.ChangeCreateOnly {
		p.Change = dependents.CreateOnly
	}
	return p
}

func rolloutOf(r *v1alpha1.Replicator) dependents.Rollout {
	said := r.Spec.Rollout
	rollout := dependents.Rollout{HaltAfter: said.HaltAfter, ProgressDeadline: time.Duration(said.ProgressDeadlineSeconds) * time.Second}
	if said.MaxParallel != nil {
		rollout.MaxParallel = *said.MaxParallel
	}
	return rollout
}

// targets returns the clusters that a Replicator chooses. It chooses by names and labels, and not by how members are.
func (c *controller) targets(ctx context.Context, r *v1alpha1.Replicator) ([]mcreconcile.ClusterName, error) {
	selector, why := c.choice(r)
	if why != nil {
		return nil, errors.Join(why, c.tellInvalid(ctx, r, why))
	}
	var all []mcreconcile.ClusterName
	for _, name := range r.Spec.Clusters.Names {
		all = append(all, mcreconcile.ClusterName(name))
	}
	for _, member := range c.fleet.List(selector) {
		all = append(all, member.Name)
	}
	decided, err := c.decided(ctx, r)
	return append(all, decided...), err
}

// choice returns which members a Replicator selects, or why it does not say which clusters it chooses.
func (c *controller) choice(r *v1alpha1.Replicator) (labels.Selector, error) {
	if err := errOfSpec(r); err != nil {
		return nil, err
	}
	if r.Spec.Clusters.DecisionKey != "" && !c.decisions {
		return nil, errNoDecisions
	}
	selector, err := compiled(r.Spec.Clusters.Selector)
	if err != nil {
		return nil, fmt.Errorf("spec.clusters.selector: %w", err)
	}
	return selector, nil
}

var errNoDecisions = errors.New("spec.clusters.decisionKey: PlacementDecisions are not read without the operator's flag --placement-decisions")

// tellInvalid tells in the status of a Replicator why it is not known which clusters it chooses. The Reconciler calls Status only for what it
// can plan.
func (c *controller) tellInvalid(ctx context.Context, r *v1alpha1.Replicator, why error) error {
	changed := r.DeepCopy()
	if changed.Status.Targets < 0 { // it cannot be decoded either
		changed.Status = v1alpha1.Status{}
	}
	changed.Status.ObservedGeneration = r.Generation
	if !meta.SetStatusCondition(&changed.Status.Conditions, invalid(r, why)) {
		return nil
	}
	err := c.statuses.Patch(ctx, changed, client.MergeFromWithOptions(r, client.MergeFromWithOptimisticLock{}), client.FieldOwner(name))
	if apierrors.IsConflict(err) { // it is tried again, as after the error of the spec in any case
		return nil
	}
	return err
}

// decided returns the clusters that a scheduler has chosen. A decision that is not there chooses none.
func (c *controller) decided(ctx context.Context, r *v1alpha1.Replicator) (all []mcreconcile.ClusterName, _ error) {
	if r.Spec.Clusters.DecisionKey == "" {
		return nil, nil
	}
	list := &inventoryv1alpha1.PlacementDecisionList{}
	key := client.MatchingLabels{inventoryv1alpha1.DecisionKeyLabel: r.Spec.Clusters.DecisionKey}
	if err := c.hub.List(ctx, list, client.InNamespace(r.Namespace), key); err != nil {
		return nil, fmt.Errorf("reading PlacementDecisions: %w", err)
	}
	for _, decision := range list.Items {
		for _, d := range decision.Decisions {
			namespace := d.ClusterProfileRef.Namespace
			if namespace == "" {
				namespace = decision.Namespace
			}
			all = append(all, c.memberOf(namespace, d.ClusterProfileRef.Name))
		}
	}
	return all, nil
}

// memberOf returns the name of the member that a ClusterProfile is. Profiles of one name may be of several inventories, so the name
// alone leads to a member only where the members are described too: what is in that namespace is of those who run the fleet. A name that
// no member can have, as it is too long, is cut: a decision may have any, and a Replicator keeps the names of its clusters.
func (c *controller) memberOf(namespace, profile string) mcreconcile.ClusterName {
	name := namespace + "/" + profile
	if namespace == c.namespace && profile != "" { // no name at all is the hub's
		name = profile
	}
	if len(name) > longestTarget {
		name = strings.Clone(name[:longestTarget])
	}
	return mcreconcile.ClusterName(name)
}

// longestTarget is how much of the name of a cluster is kept, in bytes. No member has a name of that length.
const longestTarget = fleet.MaxNameLength + 1

// follow watches in the hub what Replicators refer to.
func (c *controller) follow(b *mcbuilder.Builder) {
	for _, kind := range c.sources {
		source := &unstructured.Unstructured{}
		source.SetGroupVersionKind(kind)
		b.Watches(source, c.replicatorsThat(func(r *v1alpha1.Replicator, changed client.Object) bool {
			return slices.ContainsFunc(r.Spec.References, func(ref v1alpha1.Reference) bool {
				return ref.Group == kind.Group && ref.Kind == kind.Kind && ref.Name == changed.GetName()
			})
		}), mcbuilder.InLocalCluster)
	}
	if c.decisions {
		b.Watches(&inventoryv1alpha1.PlacementDecision{}, c.replicatorsThat(func(r *v1alpha1.Replicator, changed client.Object) bool {
			key := r.Spec.Clusters.DecisionKey
			return key != "" && changed.GetLabels()[inventoryv1alpha1.DecisionKeyLabel] == key
		}), mcbuilder.InLocalCluster)
	}
}

// replicatorsThat maps an object to the Replicators of its namespace that it concerns.
func (c *controller) replicatorsThat(concerns func(*v1alpha1.Replicator, client.Object) bool) mchandler.HandlerFunc {
	return mchandler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) (all []reconcile.Request) {
		list := &v1alpha1.ReplicatorList{}
		if err := c.hub.List(ctx, list, client.InNamespace(changed.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Cannot find the Replicators that a change concerns", "namespace", changed.GetNamespace())
			return nil
		}
		for i := range list.Items {
			if r := &list.Items[i]; concerns(r, changed) {
				all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(r)})
			}
		}
		return all
	})
}
