package main

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/examples/foo/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// namespace is where the Deployments are, wherever the Foos are.
const namespace = "foo"

// newController returns the controller. The rest is the library's: the finalizer on the Foo before its Deployment exists,
// the deletion of both, a Deployment that was changed or deleted by somebody, one that belongs to somebody else.
func newController() *dependents.Reconciler[*v1alpha1.Foo] {
	return &dependents.Reconciler[*v1alpha1.Foo]{
		Fleet: "foo", Name: "foo-controller",
		// Foos are in every member, which is the default, and what becomes of them is in the central cluster.
		DependentsIn: mcowner.Clusters{Local: true},
		Kinds:        []client.Object{&appsv1.Deployment{}},
		Namespaces:   []string{namespace},
		Desired:      deploymentOf,
		Status:       status,
		// When a cluster with Foos leaves well, its Foos lose the finalizer, and their Deployments stay. LeaveDeleted would delete them.
		OnOwnersLeaving: dependents.LeaveAsIs,
	}
}

// deploymentOf returns the Deployment that a Foo asks for.
func deploymentOf(_ context.Context, foo *v1alpha1.Foo, _ dependents.Target) ([]client.Object, error) {
	labels := map[string]string{"app": foo.Spec.DeploymentName}
	return []client.Object{&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: foo.Spec.DeploymentName},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.29"}}},
			},
		},
	}}, nil
}

// status writes to the status of a Foo what came of it, and records an event in the Foo's cluster when that is news.
func status(ctx context.Context, foo *v1alpha1.Foo, results []dependents.Result) error {
	foo.Status.ObservedGeneration = foo.Generation
	for _, r := range results { // one, of the central cluster
		if r.Err == nil {
			foo.Status.AvailableReplicas = available(r.Dependents())
		}
		condition := conditionOf(foo, r)
		isPending := condition.Reason == dependents.ReasonPending
		before := meta.FindStatusCondition(foo.Status.Conditions, condition.Type)
		if isPending && errors.Is(r.Err, dependents.ErrPending) && before != nil && before.ObservedGeneration == foo.Generation {
			continue // it holds until the library has looked, as after a restart
		}
		if meta.SetStatusCondition(&foo.Status.Conditions, condition) && !isPending {
			kind := corev1.EventTypeWarning
			if condition.Status == metav1.ConditionTrue {
				kind = corev1.EventTypeNormal
			}
			recorder := mcreconcile.ClusterFrom(ctx).GetEventRecorder("foo-controller")
			recorder.Eventf(foo, nil, kind, condition.Reason, "Sync", "%s", condition.Message)
		}
	}
	return nil
}

func available(deployments []client.Object) (replicas int32) {
	for _, d := range deployments {
		replicas += d.(*appsv1.Deployment).Status.AvailableReplicas //nolint:forcetypeassert // it is the only kind
	}
	return replicas
}

// conditionOf says whether the Deployment is as the Foo asks. The message does not repeat errors, which may be different
// each time: the library's events have them.
func conditionOf(foo *v1alpha1.Foo, r dependents.Result) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionSynced, Status: metav1.ConditionFalse, ObservedGeneration: foo.Generation,
		Reason: "Failed", Message: "The Deployment is not as it should be; the events say why",
	}
	conflict, isConflict := errors.AsType[*dependents.ConflictError](r.Err)
	summary := dependents.Summarize([]dependents.Result{r})
	switch {
	case summary.Pending > 0:
		c.Reason, c.Message = dependents.ReasonPending, "The Deployment is about to be made as it should be"
	case summary.Suspended > 0:
		c.Reason = dependents.ReasonSuspended
		c.Message = fmt.Sprintf("The Deployment %s/%s is not as it should be, and is left so: the annotation %s says so",
			namespace, foo.Spec.DeploymentName, dependents.SuspendAnnotation)
	case r.Err == nil:
		c.Status, c.Reason = metav1.ConditionTrue, "Synced"
		c.Message = fmt.Sprintf("The Deployment %s/%s is as it should be", namespace, foo.Spec.DeploymentName)
	case isConflict:
		c.Reason, c.Message = "ErrResourceExists", fmt.Sprintf("%s exists already: %v", conflict.Object, conflict.Why)
	case !foo.DeletionTimestamp.IsZero():
		c.Reason, c.Message = "Terminating", "Waiting until the Deployment is gone"
	}
	return c
}
