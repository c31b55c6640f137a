package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// importsAtOnce is how many imports are worked on side by side. Each may wait for a cluster that does not answer, but few of one
// cluster do.
const importsAtOnce = 64

// Imports keeps the Secrets of ServiceAccountImports. An import is allowed by the ClusterAccess of its cluster, whose minter or
// whose federated account must have the right to create serviceaccounts/token for the imported account. It works on the elected
// replica alone. The zero value is ready for use in a pod.
type Imports struct {
	// Namespace is the one namespace of the ClusterAccesses, as in the provider.
	// Default: that of the manager, which is in the environment variable POD_NAMESPACE, or else known to every pod with a
	// service account.
	Namespace string

	// AllNamespaces takes the ClusterAccesses of all namespaces. Clusters are then called "namespace/name".
	AllNamespaces bool
}

// SetupWithManager adds the controller to a manager, whose scheme must know the kinds of package v1alpha1. It serves imports of the
// namespaces that the manager's cache has. The manager of a fleet serves as well as one of controller-runtime's.
func (o Imports) SetupWithManager(mgr manager.Manager) error {
	return o.setup(mgr, importPace{importCheckEvery, keepFor})
}

// importPace says how often a cluster is asked whether it accepts a token, and after how long another one is made.
type importPace struct {
	checkEvery time.Duration
	keepFor    func(granted time.Duration) time.Duration
}

func (o Imports) setup(mgr manager.Manager, pace importPace) error {
	switch {
	case o.AllNamespaces && o.Namespace != "":
		return errors.New("access: set one of Imports.Namespace and AllNamespaces")
	case !o.AllNamespaces && o.Namespace == "":
		own, err := inpod.Namespace(inpod.NamespaceFile)
		if err != nil {
			return fmt.Errorf("access: the ClusterAccesses are in the manager's own namespace by default: %w, or Imports.Namespace", err)
		}
		o.Namespace = own
	}
	hub, err := NewHub(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("access: a client of the hub: %w", err)
	}
	r := &importer{
		Imports: o, hub: hub, client: mgr.GetClient(), recorder: mgr.GetEventRecorder("serviceaccountimport"),
		lines: lines{lines: map[client.ObjectKey]*line{}}, pace: pace,
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("serviceaccountimport").
		For(&v1alpha1.ServiceAccountImport{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ClusterAccess{}, handler.EnqueueRequestsFromMapFunc(r.importsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: importsAtOnce,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retry.First, retry.Longest),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("access: the controller of ServiceAccountImports: %w", err)
	}
	return nil
}

// importer is the reconciler of [Imports].
type importer struct {
	Imports
	hub      *Hub
	client   client.Client
	recorder events.EventRecorder
	lines    lines
	pace     importPace
}

// accessKey returns the ClusterAccess of a cluster, and false for a name that none can have.
func (o Imports) accessKey(cluster string) (client.ObjectKey, bool) {
	namespace, name, two := strings.Cut(cluster, "/")
	if o.AllNamespaces {
		return client.ObjectKey{Namespace: namespace, Name: name}, two
	}
	return client.ObjectKey{Namespace: o.Namespace, Name: cluster}, !two
}

// importsOf returns the imports of a cluster.
func (r *importer) importsOf(ctx context.Context, access client.Object) (requests []reconcile.Request) {
	list := &v1alpha1.ServiceAccountImportList{}
	if err := r.client.List(ctx, list); err != nil { // by the cache, which has them, or the manager has ended
		return nil
	}
	for i := range list.Items {
		if key, ok := r.accessKey(list.Items[i].Spec.ClusterName); ok && key == client.ObjectKeyFromObject(access) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile implements [ctrl.Reconciler].
func (r *importer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	i := &v1alpha1.ServiceAccountImport{}
	if err := r.client.Get(ctx, req.NamespacedName, i); err != nil || !i.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the garbage collector deletes its Secret
	}
	before := i.DeepCopy()
	again, err := r.keep(ctx, i)
	before.ResourceVersion = i.ResourceVersion // it may have been noted in the status which Secret is written
	if err == nil && !equality.Semantic.DeepEqual(before.Status, i.Status) {
		err = r.client.Status().Patch(ctx, i, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			r.tell(before, i)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // something was written meanwhile
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// tell records an event when it is news whether the import is ready, or why not.
func (r *importer) tell(before, after *v1alpha1.ServiceAccountImport) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason:
	case is.Status == metav1.ConditionTrue:
		r.recorder.Eventf(after, nil, corev1.EventTypeNormal, v1alpha1.ConditionReady, "Import", "The Secret %s has a token of the account", secretName(after))
	default:
		r.recorder.Eventf(after, nil, corev1.EventTypeWarning, is.Reason, "Import", "%s", is.Message)
	}
}

// allowedAccess returns the access of the cluster of an import, which may not be ours to use: then the error is an [Error].
func (r *importer) allowedAccess(ctx context.Context, i *v1alpha1.ServiceAccountImport) (*v1alpha1.ClusterAccess, error) {
	unknown := &Error{v1alpha1.ReasonClusterNotFound, fmt.Sprintf("there is no ClusterAccess of the cluster %q", i.Spec.ClusterName), nil}
	key, ok := r.accessKey(i.Spec.ClusterName)
	if !ok {
		return nil, unknown
	}
	a := &v1alpha1.ClusterAccess{}
	if err := r.client.Get(ctx, key, a); apierrors.IsNotFound(err) {
		r.lines.forget(key)
		return nil, unknown
	} else if err != nil {
		return nil, err
	}
	account := i.Spec.Namespace + "/" + i.Spec.Name
	if !slices.ContainsFunc(a.Spec.AllowedImports, func(allowed v1alpha1.AllowedImports) bool {
		return slices.Contains(allowed.Namespaces, i.Namespace) && slices.Contains(allowed.ServiceAccounts, account)
	}) {
		return nil, &Error{v1alpha1.ReasonNotAllowed, fmt.Sprintf(
			"spec.allowedImports of the ClusterAccess %s does not allow the namespace %s to import the account %s", key, i.Namespace, account), nil}
	}
	return a, nil
}
