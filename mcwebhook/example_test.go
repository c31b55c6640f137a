package mcwebhook_test

import (
	"context"
	"fmt"
	"log"
	"os"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcwebhook"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// limits validates Deployments by the ConfigMap of their member.
type limits struct{}

func (limits) ValidateCreate(ctx context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	member := mcreconcile.ClusterFrom(ctx) // whose API server asks
	policy := &corev1.ConfigMap{}
	if err := member.GetClient().Get(ctx, client.ObjectKey{Namespace: "policy", Name: "images"}, policy); err != nil {
		return nil, err
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Image == policy.Data["forbidden"] {
			name, _ := mcreconcile.ClusterNameFrom(ctx)
			return nil, fmt.Errorf("the image %s is forbidden in %s", c.Image, name)
		}
	}
	return nil, nil
}

func (l limits) ValidateUpdate(ctx context.Context, _, d *appsv1.Deployment) (admission.Warnings, error) {
	return l.ValidateCreate(ctx, d)
}

func (limits) ValidateDelete(context.Context, *appsv1.Deployment) (admission.Warnings, error) {
	return nil, nil
}

// setupDeploymentWebhook is what kubebuilder scaffolds. It is not changed.
func setupDeploymentWebhook(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &appsv1.Deployment{}).WithValidator(limits{}).Complete()
}

// A webhook that kubebuilder has scaffolded is registered for all members, by the manifest that controller-gen has written.
func ExampleNew() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), &kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	manifests, err := os.ReadFile("config/webhook/manifests.yaml")
	if err != nil {
		log.Fatal(err)
	}
	configurations, err := mcwebhook.Parse(manifests)
	if err != nil {
		log.Fatal(err)
	}
	hooks, err := mcwebhook.New(mgr, mcwebhook.Options{
		Name: "limits", URL: "https://limits.example.com", Configurations: configurations,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := setupDeploymentWebhook(hooks); err != nil { // it was called with mgr
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// Any handler can be registered, with a configuration that is written in Go. The certificate is that of cert-manager.
func ExampleManager() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), &kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "deployments.limits.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Path: new("/limits")}},
			SideEffects:  new(admissionregistrationv1.SideEffectClassNone),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
			}},
		}},
	}
	hooks, err := mcwebhook.New(mgr, mcwebhook.Options{
		Name: "limits", URL: "https://limits.example.com", Configurations: []client.Object{configuration},
		Server: webhook.Options{CertDir: "/certs"},
	})
	if err != nil {
		log.Fatal(err)
	}
	hooks.GetWebhookServer().Register("/limits", &admission.Webhook{
		Handler: admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
			name, _ := mcreconcile.ClusterNameFrom(ctx)
			return admission.Denied(fmt.Sprintf("nobody deletes %s in %s", req.Name, name))
		}),
	})
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
