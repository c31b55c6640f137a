package namespaces_test

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// The members are the namespaces with the label tenant. Each gets a quota.
func ExampleProvider() {
	tenants, err := labels.Parse("tenant")
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), namespaces.Provider{Selector: tenants}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	err = mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.Namespace{}). // each sees its own
		Complete(mcreconcile.Func(func(ctx context.Context, _ mcreconcile.Request) (ctrl.Result, error) {
			tenant := mcreconcile.ClusterFrom(ctx).GetClient()
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "default"}, // the namespace is the tenant's
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("20")}},
			}
			return ctrl.Result{}, client.IgnoreAlreadyExists(tenant.Create(ctx, quota))
		}))
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
