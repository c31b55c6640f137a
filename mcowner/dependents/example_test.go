package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

var mgr mcmanager.Manager // of mcmanager.New

// Deployments of members with the label role=source are copied to the cluster that their label "to" names.
func ExampleReconciler() {
	copier := &dependents.Reconciler[*appsv1.Deployment]{
		Fleet:        "payments",
		Name:         "copier",
		OwnersIn:     mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"role": "source"})},
		DependentsIn: mcowner.Clusters{Members: labels.SelectorFromSet(labels.Set{"role": "target"})},
		Kinds:        []client.Object{&appsv1.Deployment{}},
		Targets: func(_ context.Context, owner *appsv1.Deployment) ([]mcreconcile.ClusterName, error) {
			if to := owner.Labels["to"]; to != "" {
				return []mcreconcile.ClusterName{mcreconcile.ClusterName(to)}, nil
			}
			return nil, nil
		},
		Desired: func(_ context.Context, owner *appsv1.Deployment, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name, Labels: owner.Labels},
				Spec:       owner.Spec,
			}}, nil
		},
	}
	if err := copier.SetupWithManager(mgr); err != nil {
		log.Fatal(err)
	}
}

// What came of thousands of clusters is in slices, and conditions of the owner count it.
func ExampleSlices() {
	spread := &dependents.Reconciler[*policyv1.PodDisruptionBudget]{
		Fleet:    "payments",
		Name:     "budgets",
		OwnersIn: mcowner.Clusters{Local: true},
		Kinds:    []client.Object{&policyv1.PodDisruptionBudget{}},
		Desired: func(_ context.Context, owner *policyv1.PodDisruptionBudget, _ dependents.Target) ([]client.Object, error) {
			return []client.Object{&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name}, Spec: owner.Spec,
			}}, nil
		},
	}
	spread.Slices = &dependents.Slices{}
	spread.Status = func(_ context.Context, owner *policyv1.PodDisruptionBudget, results []dependents.Result) error {
		dependents.Summarize(results).SetConditions(&owner.Status.Conditions, owner.Generation)
		return nil
	}
	if err := spread.SetupWithManager(mgr); err != nil {
		log.Fatal(err)
	}
}

// ConfigMaps of the local cluster with the label "spread" are to be in every member, in a tenth of them at once.
func ExampleReconciler_everywhere() {
	spread := &dependents.Reconciler[*corev1.ConfigMap]{
		Fleet:        "payments",
		Name:         "spread",
		OwnersIn:     mcowner.Clusters{Local: true},
		DependentsIn: mcowner.Clusters{Members: labels.Everything()},
		Kinds:        []client.Object{&corev1.ConfigMap{}},
		Rollout:      dependents.Rollout{MaxParallel: intstr.FromString("10%"), HaltAfter: 3},
		Targets: func(_ context.Context, owner *corev1.ConfigMap) (all []mcreconcile.ClusterName, _ error) {
			if _, is := owner.Labels["spread"]; is {
				for _, m := range mgr.GetFleet().List(labels.Everything()) {
					all = append(all, m.Name)
				}
			}
			return all, nil
		},
		Desired: func(_ context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
			return []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: owner.Name},
				Data:       map[string]string{"cluster": string(target.Cluster)},
			}}, nil
		},
	}
	err := spread.SetupWithManager(mgr, func(b *mcbuilder.Builder) {
		b.WithOptions(mcbuilder.Options{MaxConcurrentReconciles: 4})
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The objects that an owner lists, of whatever kinds, are to be in all members with its label "stage": what a replicator is, apart from
// overrides and tenants. Their namespaces come with them, what came of thousands of members is in slices, and a rollout halts after failures.
func ExampleReconciler_anyKinds() {
	bundle := &unstructured.Unstructured{}
	bundle.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bundle"})
	bundles := &dependents.Reconciler[*unstructured.Unstructured]{
		Fleet:            "payments",
		Name:             "bundles",
		Owner:            bundle,
		OwnersIn:         mcowner.Clusters{Local: true},
		DependentsIn:     mcowner.Clusters{Members: labels.Everything()},
		CreateNamespaces: true,
		Slices:           &dependents.Slices{},
		Rollout:          dependents.Rollout{MaxParallel: intstr.FromString("5%"), HaltAfter: 3},
		MoreKinds: func(kind schema.GroupVersionKind) error {
			if kind.Group == "rbac.authorization.k8s.io" {
				return errors.New("bundles have no rights in them")
			}
			return nil
		},
		Targets: func(_ context.Context, owner *unstructured.Unstructured) (in []mcreconcile.ClusterName, _ error) {
			for _, m := range mgr.GetFleet().List(labels.SelectorFromSet(labels.Set{"stage": owner.GetLabels()["stage"]})) {
				in = append(in, m.Name)
			}
			return in, nil
		},
		Desired: func(_ context.Context, owner *unstructured.Unstructured, _ dependents.Target) (all []client.Object, _ error) {
			objects, _, err := unstructured.NestedSlice(owner.Object, "spec", "objects")
			for _, object := range objects {
				if content, is := object.(map[string]any); is {
					all = append(all, &unstructured.Unstructured{Object: content})
				}
			}
			return all, err
		},
		Status: func(_ context.Context, owner *unstructured.Unstructured, results []dependents.Result) error {
			count := dependents.Summarize(results)
			return unstructured.SetNestedField(owner.Object, fmt.Sprintf("%d of %d", count.Done, count.Targets), "status", "done")
		},
	}
	if err := bundles.SetupWithManager(mgr); err != nil {
		log.Fatal(err)
	}
}

// What came of a cluster is told by the types of errors.
func ExampleResult() {
	_ = func(r dependents.Result) string {
		notReady, isAway := errors.AsType[*fleet.StateError](r.Err)
		conflict, isOthers := errors.AsType[*dependents.ConflictError](r.Err)
		switch {
		case isAway:
			return fmt.Sprintf("it is %s since %s", notReady.Status.State, notReady.Status.Since)
		case isOthers:
			return conflict.Object + " is somebody else's"
		case r.Err != nil:
			return "its API server has refused"
		default:
			return ""
		}
	}
}

// Owners of each cluster are served with the rights of a user of their own.
func ExampleReconciler_impersonation() {
	_ = dependents.Reconciler[*appsv1.Deployment]{
		User: func(owner mcreconcile.Request) string { return "from-" + string(owner.ClusterName) },
	}
}

// Owners of a kind without a Go type are read as unstructured objects. The field Owner says which kind that is.
func ExampleReconciler_unstructured() {
	bucket := &unstructured.Unstructured{}
	bucket.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bucket"})
	buckets := &dependents.Reconciler[*unstructured.Unstructured]{
		Fleet: "payments",
		Name:  "buckets",
		Owner: bucket,
		Kinds: []client.Object{&corev1.ConfigMap{}},
		Desired: func(_ context.Context, owner *unstructured.Unstructured, _ dependents.Target) ([]client.Object, error) {
			region, _, err := unstructured.NestedString(owner.Object, "spec", "region")
			return []client.Object{&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: owner.GetName()},
				Data:       map[string]string{"region": region},
			}}, err
		},
	}
	if err := buckets.SetupWithManager(mgr); err != nil {
		log.Fatal(err)
	}
}

// The name of a dependent whose owners may be in several clusters and namespaces.
func ExampleReconciler_names() {
	_ = dependents.Reconciler[*appsv1.Deployment]{
		Desired: func(ctx context.Context, owner *appsv1.Deployment, _ dependents.Target) ([]client.Object, error) {
			origin, ok := mcreconcile.ClusterNameFrom(ctx)
			if !ok {
				return nil, errors.New("called outside a reconcile")
			}
			return []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "copies", Name: mcowner.UniqueName(63, string(origin), owner.Namespace, owner.Name),
			}}}, nil
		},
	}
}

// A reference made by hand says which clusters it is about, so that others of the same names are told apart.
func Example_referenceByHand() {
	clusters := &mcmanager.Identities{Manager: mgr}
	_ = func(ctx context.Context, req mcreconcile.Request, owner *appsv1.Deployment, dependent *corev1.ConfigMap, in mcreconcile.ClusterName) error {
		home, err := clusters.Of(ctx, req.ClusterName)
		if err != nil {
			return err
		}
		there, err := clusters.Of(ctx, in)
		if err != nil {
			return err
		}
		reference, err := mcowner.ReferenceTo("payments", home, owner, mgr.GetScheme())
		if err != nil {
			return err
		}
		return mcowner.SetControllerReference(reference, dependent, there)
	}
}

// Dependents that somebody else has put there before are taken over, single ones are created and then left alone, and what came of
// each is counted.
func ExampleReconciler_policies() {
	_ = dependents.Reconciler[*policyv1.PodDisruptionBudget]{
		Policy: dependents.Policy{Conflict: dependents.AdoptUnowned, Immutable: dependents.Recreate},
		Kinds:  []client.Object{&corev1.ConfigMap{}},
		Desired: func(_ context.Context, owner *policyv1.PodDisruptionBudget, _ dependents.Target) ([]client.Object, error) {
			settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: owner.Namespace, Name: owner.Name,
				// Users of the member may change it as they like.
				Annotations: map[string]string{dependents.ChangeAnnotation: string(dependents.CreateOnly)},
			}}
			return []client.Object{settings}, nil
		},
		Status: func(_ context.Context, owner *policyv1.PodDisruptionBudget, results []dependents.Result) error {
			drifted := metav1.Condition{Type: "Drifted", Status: metav1.ConditionFalse, Reason: "AsDesired"}
			for _, r := range results {
				for _, o := range r.Objects {
					if o.State == dependents.Drifted { // somebody had changed it
						drifted.Status, drifted.Reason, drifted.Message = metav1.ConditionTrue, "Corrected", o.Key.String()
					}
				}
			}
			meta.SetStatusCondition(&owner.Status.Conditions, drifted)
			return nil
		},
		OnMemberLeaving: dependents.LeaveDeleted,
	}
}

// The members' caches have nothing of the kinds of dependents but what carries the label of the installation, and all Deployments,
// which are owners there.
func ExampleOnlyLabelled() {
	_ = fleet.Options{ClusterOptions: func(fleet.Member) []cluster.Option {
		return []cluster.Option{dependents.OnlyLabelled("payments", &appsv1.Deployment{})}
	}}
}
