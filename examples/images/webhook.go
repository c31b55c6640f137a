package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// allowed is the ConfigMap of a member that says in its field prefixes how images may begin. Without it, all may be used there.
var allowed = client.ObjectKey{Namespace: "fleet", Name: "images"}

// +kubebuilder:webhook:path=/validate-apps-v1-deployment,mutating=false,failurePolicy=ignore,sideEffects=None,groups=apps,resources=deployments,verbs=create;update,versions=v1,name=vdeployment.images.example.com,admissionReviewVersions=v1

// setupDeploymentWebhook is what kubebuilder scaffolds.
func setupDeploymentWebhook(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &appsv1.Deployment{}).WithValidator(images{}).Complete()
}

// images validates the images of Deployments by what their own cluster allows.
type images struct{}

// ValidateCreate implements admission.Validator.
func (i images) ValidateCreate(ctx context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	prefixes, err := i.prefixes(ctx)
	if err != nil || prefixes == nil {
		return nil, err
	}
	pod := d.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(c.Image, prefix) }) {
			name, _ := mcreconcile.ClusterNameFrom(ctx)
			return nil, fmt.Errorf("the container %s: %s allows images of %s, and %s is none", c.Name, name, strings.Join(prefixes, ", "), c.Image)
		}
	}
	return nil, nil
}

// prefixes asks the member whose API server asks. The answer is nil where all images may be used.
func (images) prefixes(ctx context.Context) ([]string, error) {
	says := &corev1.ConfigMap{}
	// One that is read for each Deployment need not be followed in every member.
	err := mcreconcile.ClusterFrom(ctx).GetAPIReader().Get(ctx, allowed, says)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("finding out which images are allowed: %w", err)
	}
	return append([]string{}, strings.Fields(says.Data["prefixes"])...), nil
}

// ValidateUpdate implements admission.Validator. What was there before does not count: an image may have been forbidden since.
func (i images) ValidateUpdate(ctx context.Context, _, d *appsv1.Deployment) (admission.Warnings, error) {
	return i.ValidateCreate(ctx, d)
}

// ValidateDelete implements admission.Validator.
func (images) ValidateDelete(context.Context, *appsv1.Deployment) (admission.Warnings, error) {
	return nil, nil
}
