package mcreconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/internal/life"
)

// PerCluster runs an ordinary controller-runtime reconciler, unchanged, against every cluster: newReconciler makes one
// instance for each engagement, at its first request, and the instance is forgotten when the engagement ends. A member
// that is engaged anew gets a new instance. The local cluster has one for as long as the controller runs.
//
// newReconciler is never called twice for one engagement. It may be called for several clusters at once.
func PerCluster(newReconciler func(cl cluster.Cluster) reconcile.Reconciler) Reconciler {
	return &perCluster{newReconciler: newReconciler, instances: map[instanceKey]func() reconcile.Reconciler{}}
}

type perCluster struct {
	newReconciler func(cluster.Cluster) reconcile.Reconciler

	mu sync.Mutex // guards instances; newReconciler runs outside it
	// instances makes (once) and returns the reconciler of each engagement.
	instances map[instanceKey]func() reconcile.Reconciler
}

// instanceKey tells engagements apart. A provider may report the same cluster for several. One life may have several
// clusters, where somebody works on another cluster than that of the request.
type instanceKey struct {
	over    <-chan struct{} // is closed when the life ends. Contexts that a reconcile adds values to share it
	cluster cluster.Cluster
}

var errNoCluster = errors.New(noCluster)

func (p *perCluster) Reconcile(ctx context.Context, req Request) (reconcile.Result, error) {
	at, ok := atClusterFrom(ctx)
	if !ok {
		return reconcile.Result{}, reconcile.TerminalError(errNoCluster)
	}
	instance, err := p.instance(life.Of(at.Context), at.cluster)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reconciling %v: %w", req, err)
	}
	return instance().Reconcile(ctx, req.Request)
}

// instance returns what makes (once) the reconciler of a cluster. An error is the cause of the end of its life: the instance
// is forgotten by then, and no other is made.
func (p *perCluster) instance(life context.Context, cl cluster.Cluster) (func() reconcile.Reconciler, error) {
	key := instanceKey{life.Done(), cl}
	p.mu.Lock()
	defer p.mu.Unlock()
	if instance, ok := p.instances[key]; ok {
		return instance, nil
	}
	if life.Err() != nil {
		return nil, context.Cause(life)
	}
	instance := sync.OnceValue(func() reconcile.Reconciler { return p.newReconciler(cl) })
	p.instances[key] = instance
	context.AfterFunc(life, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.instances, key)
	})
	return instance, nil
}
