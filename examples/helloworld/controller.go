package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// addHello adds one controller for the Pods of all members, those of now and later.
func addHello(mgr mcmanager.Manager) error {
	return mcbuilder.ControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(mcreconcile.Func(hello))
}

// hello logs a Pod. The line has the cluster, the namespace and the name: they are those of the request.
func hello(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	log := ctrl.LoggerFrom(ctx)
	pod := &corev1.Pod{}
	err := mcreconcile.ClusterFrom(ctx).GetClient().Get(ctx, req.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err):
		log.Info("Goodbye")
	case err != nil:
		return ctrl.Result{}, err
	default:
		log.Info("Hello", "phase", pod.Status.Phase)
	}
	return ctrl.Result{}, nil
}
