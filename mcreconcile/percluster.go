package mcreconcile

import (
	"context"
	"errors"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// errNoCluster says that a reconciler was called outside a controller that mcbuilder built.
var errNoCluster = errors.New("the context carries no cluster: build the controller with mcbuilder, or use mcreconcile.WithCluster in tests")

// PerCluster runs an ordinary controller-runtime reconciler, unchanged, against every cluster: newReconciler makes one
// instance for each engagement, at its first request, and the instance is forgotten when the engagement ends. A member
// that is engaged anew gets a new instance.
//
// newReconciler is never called twice for one engagement. It may be called for several clusters at once.
func PerCluster(newReconciler func(cl cluster.Cluster) reconcile.Reconciler) Reconciler {
	return &perCluster{newReconciler: newReconciler, instances: map[cluster.Cluster]func() reconcile.Reconciler{}}
}

type perCluster struct {
	newReconciler func(cluster.Cluster) reconcile.Reconciler

	mu sync.Mutex // guards instances; newReconciler runs outside it
	// instances makes (once) and returns the reconciler of each cluster.
	instances map[cluster.Cluster]func() reconcile.Reconciler
}

func (p *perCluster) Reconcile(ctx context.Context, req Request) (reconcile.Result, error) {
	e := engagedFrom(ctx)
	if e.cluster == nil {
		return reconcile.Result{}, reconcile.TerminalError(errNoCluster)
	}
	return p.instance(e)().Reconcile(ctx, req.Request)
}

func (p *perCluster) instance(e engaged) func() reconcile.Reconciler {
	p.mu.Lock()
	defer p.mu.Unlock()
	if instance, ok := p.instances[e.cluster]; ok {
		return instance
	}
	instance := sync.OnceValue(func() reconcile.Reconciler { return p.newReconciler(e.cluster) })
	p.instances[e.cluster] = instance
	context.AfterFunc(e.engagement, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.instances, e.cluster)
	})
	return instance
}
