package mcreconcile_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func ExampleRequest() {
	key := types.NamespacedName{Namespace: "shop", Name: "cart"}
	east := mcreconcile.Request{Request: reconcile.Request{NamespacedName: key}, ClusterName: "east"}
	fmt.Println(east)
	fmt.Println(east.WithCluster("west"))
	fmt.Println(east.WithCluster(mcreconcile.LocalCluster))
	fmt.Println(east == east.WithCluster("west"))
	// Output:
	// cluster://east/shop/cart
	// cluster://west/shop/cart
	// shop/cart
	// false
}

// A reconciler of a fleet finds the cluster of its request in the context.
func ExampleClusterFrom() {
	var _ mcreconcile.Reconciler = mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		member := mcreconcile.ClusterFrom(ctx).GetClient()
		service := &corev1.Service{}
		if err := member.Get(ctx, req.NamespacedName, service); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, nil
	})
}

// A reconciler takes back its finalizer where the object is deleted, and where the cluster leaves. An error says that it is not
// done. In a test of it alone, WithLeaving does what the fleet does.
func ExampleLeaving() {
	const finalizer = "shop.example.com/cart"
	var _ mcreconcile.Reconciler = mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		member := mcreconcile.ClusterFrom(ctx).GetClient()
		service := &corev1.Service{}
		if err := member.Get(ctx, req.NamespacedName, service); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		before := service.DeepCopy()
		if mcreconcile.Leaving(ctx) || !service.DeletionTimestamp.IsZero() {
			controllerutil.RemoveFinalizer(service, finalizer)
		} else {
			controllerutil.AddFinalizer(service, finalizer)
		}
		return reconcile.Result{}, member.Patch(ctx, service, client.MergeFrom(before))
	})
	fmt.Println(mcreconcile.Leaving(context.Background()), mcreconcile.Leaving(mcreconcile.WithLeaving(context.Background())))
	// Output: false true
}

// A system outside of Kubernetes can refuse what a replica sends that has lost the cluster, if it is told the epoch.
func ExampleEpoch() {
	register := func(_ mcreconcile.ClusterName, _ string, _ int64) error { return nil }
	var _ mcreconcile.Reconciler = mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, register(req.ClusterName, req.Name, mcreconcile.Epoch(ctx))
	})
	fmt.Println(mcreconcile.Epoch(context.Background()))
	// Output: 0
}

// greeter was written for one cluster.
type greeter struct{ greets string }

func (g greeter) Reconcile(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
	fmt.Println(g.greets, req)
	return reconcile.Result{}, nil
}

// A reconciler that was written for one cluster runs against all, one instance for each. In a test of it alone,
// WithCluster does what a controller does.
func ExamplePerCluster() {
	r := mcreconcile.PerCluster(func(cluster.Cluster) reconcile.Reconciler { return greeter{"hello"} })

	var member cluster.Cluster = &struct{ cluster.Cluster }{} // in place of a real one
	ctx := mcreconcile.WithCluster(context.Background(), "north", member)
	req := mcreconcile.Request{ClusterName: "north"}
	req.Name = "world"
	_, err := r.Reconcile(ctx, req)
	fmt.Println(err)
	// Output:
	// hello /world
	// <nil>
}

// tenant is a request that is not about one object.
type tenant struct {
	cluster mcreconcile.ClusterName
	name    string
}

func (t tenant) Cluster() mcreconcile.ClusterName { return t.cluster }

func (t tenant) WithCluster(name mcreconcile.ClusterName) tenant {
	t.cluster = name
	return t
}

// A request type of one's own needs two methods.
func ExampleClusterAware() {
	fmt.Println(inAll([]mcreconcile.ClusterName{"east", "west"}, tenant{name: "shop"}))
	// Output: [{east shop} {west shop}]
}

func inAll[request mcreconcile.ClusterAware[request]](names []mcreconcile.ClusterName, req request) []request {
	all := make([]request, len(names))
	for i, name := range names {
		all[i] = req.WithCluster(name)
	}
	return all
}
