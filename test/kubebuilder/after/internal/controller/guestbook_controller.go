package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	webappv1 "example.com/guestbook/api/v1"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	finalizer         = "webapp.example.com/archive"
	versionAnnotation = "webapp.example.com/secret-version"
	secretField       = "spec.secretName"
	ready             = "Ready"
)

// GuestbookReconciler serves guestbooks, each by a Deployment and a ConfigMap.
type GuestbookReconciler struct {
	client.Client
	Scheme   *runtime.Scheme
	Recorder events.EventRecorder
}

// +kubebuilder:rbac:groups=webapp.example.com,resources=guestbooks,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=webapp.example.com,resources=guestbooks/status,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings a guestbook's Deployment and ConfigMap up to date, and archives the guestbook when it is deleted.
func (r *GuestbookReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	guestbook := &webappv1.Guestbook{}
	if err := r.Get(ctx, req.NamespacedName, guestbook); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !guestbook.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.archive(ctx, guestbook)
	}
	if controllerutil.AddFinalizer(guestbook, finalizer) {
		if err := r.Update(ctx, guestbook); err != nil {
			return ctrl.Result{}, err
		}
	}
	secret := &corev1.Secret{}
	err := r.Get(ctx, client.ObjectKey{Namespace: guestbook.Namespace, Name: guestbook.Spec.SecretName}, secret)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.report(ctx, guestbook, metav1.ConditionFalse, "SecretMissing", "There is no such Secret")
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.serve(ctx, guestbook, secret); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, guestbook, metav1.ConditionTrue, "Served", "The Deployment is up to date")
}

// serve writes what serves the guestbook.
func (r *GuestbookReconciler) serve(ctx context.Context, guestbook *webappv1.Guestbook, secret *corev1.Secret) error {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: guestbook.Namespace, Name: guestbook.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, config, func() error {
		config.Data = map[string]string{"TITLE": guestbook.Spec.Title}
		return controllerutil.SetControllerReference(guestbook, config, r.Scheme)
	})
	if err != nil {
		return err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: guestbook.Namespace, Name: guestbook.Name}}
	result, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		podLabels := map[string]string{"app.kubernetes.io/name": "guestbook", "app.kubernetes.io/instance": guestbook.Name}
		deployment.Spec.Replicas = guestbook.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: podLabels}
		template := &deployment.Spec.Template
		template.Labels = podLabels
		template.Annotations = map[string]string{versionAnnotation: secret.ResourceVersion} // new pods for a new password
		if len(template.Spec.Containers) == 0 {
			template.Spec.Containers = []corev1.Container{{Name: "guestbook"}}
		}
		container := &template.Spec.Containers[0]
		container.Image = "registry.k8s.io/guestbook:v3"
		container.EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: config.Name}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret.Name}}},
		}
		return controllerutil.SetControllerReference(guestbook, deployment, r.Scheme)
	})
	if result != controllerutil.OperationResultNone && err == nil {
		logf.FromContext(ctx).Info("Deployed", "result", result)
		r.Recorder.Eventf(guestbook, deployment, corev1.EventTypeNormal, "Deployed", "Deploy", "The Deployment was %s", result)
	}
	return err
}

// archive keeps the title of a guestbook that is being deleted, and lets it go.
func (r *GuestbookReconciler) archive(ctx context.Context, guestbook *webappv1.Guestbook) error {
	archive := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: guestbook.Namespace, Name: guestbook.Name + "-archive"}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, archive, func() error {
		archive.Data = map[string]string{"TITLE": guestbook.Spec.Title}
		return nil
	})
	if err != nil || !controllerutil.RemoveFinalizer(guestbook, finalizer) {
		return err
	}
	return client.IgnoreNotFound(r.Update(ctx, guestbook))
}

// report writes the condition Ready, if it has changed.
func (r *GuestbookReconciler) report(
	ctx context.Context, guestbook *webappv1.Guestbook, status metav1.ConditionStatus, reason, message string,
) error {
	changed := meta.SetStatusCondition(&guestbook.Status.Conditions, metav1.Condition{
		Type: ready, Status: status, Reason: reason, Message: message, ObservedGeneration: guestbook.Generation,
	})
	if !changed {
		return nil
	}
	return r.Status().Update(ctx, guestbook)
}

// ofSecret returns a request for each guestbook that uses the Secret.
func (r *GuestbookReconciler) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	guestbooks := &webappv1.GuestbookList{}
	err := r.List(ctx, guestbooks, client.InNamespace(secret.GetNamespace()), client.MatchingFields{secretField: secret.GetName()})
	if err != nil {
		logf.FromContext(ctx).Error(err, "Cannot list the guestbooks of a Secret", "secret", client.ObjectKeyFromObject(secret))
		return nil
	}
	requests := make([]reconcile.Request, len(guestbooks.Items))
	for i := range guestbooks.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&guestbooks.Items[i])
	}
	return requests
}

// secretNameOf is what guestbooks are indexed by.
func secretNameOf(guestbook client.Object) []string {
	return []string{guestbook.(*webappv1.Guestbook).Spec.SecretName}
}

// newGuestbookReconciler returns the reconciler for the guestbooks of one cluster.
func newGuestbookReconciler(cl cluster.Cluster) *GuestbookReconciler {
	return &GuestbookReconciler{Client: cl.GetClient(), Scheme: cl.GetScheme(), Recorder: cl.GetEventRecorder("guestbook-controller")}
}

// SetupGuestbookWithManager sets up the controller with the Manager.
func SetupGuestbookWithManager(mgr mcmanager.Manager) error {
	err := mgr.GetFleetFieldIndexer().IndexField(context.Background(), &webappv1.Guestbook{}, secretField, secretNameOf)
	if err != nil {
		return err
	}
	return mcbuilder.ControllerManagedBy(mgr).
		For(&webappv1.Guestbook{}, mcbuilder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		Watches(&corev1.Secret{}, mchandler.EnqueueRequestsFromMapFunc(func(ctx context.Context, secret client.Object) []reconcile.Request {
			return newGuestbookReconciler(mcreconcile.ClusterFrom(ctx)).ofSecret(ctx, secret)
		}), mcbuilder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WithControllerOptions(controller.Options{MaxConcurrentReconciles: 2}).
		Named("guestbook").
		Complete(mcreconcile.PerCluster(func(cl cluster.Cluster) reconcile.Reconciler { return newGuestbookReconciler(cl) }))
}
