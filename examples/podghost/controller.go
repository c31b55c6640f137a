package main

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

const (
	// fleetName is the name of this installation: of several on the same clusters, each has its own.
	fleetName = "example"
	// lookAgain is when it is looked whether a PodGhost is gone that is in the way.
	lookAgain = time.Minute
)

// addPodGhosts adds a controller that keeps, in a namespace of the local cluster, a PodGhost for each Pod of the members.
//
// It does not use dependents.Reconciler, which would put a finalizer on every Pod: while this program does not run, no
// Pod could go. Pods are only read, and the collector finds the ghosts of those that went unseen.
func addPodGhosts(mgr mcmanager.Manager, namespace string, sweep time.Duration) error {
	err := mcbuilder.ControllerManagedBy(mgr).
		For(&corev1.Pod{}, mcbuilder.OnlyMetadata).
		Owns(&PodGhost{}, mcbuilder.InLocalCluster, mcbuilder.AcrossClusters(mchandler.OfFleet(fleetName))).
		Complete(&ghosts{Client: mgr.GetClient(), namespace: namespace, clusters: &mcmanager.Identities{Manager: mgr}})
	if err != nil || sweep == 0 {
		return err
	}
	return mgr.Add(&orphans.Collector{
		Name: "podghost", Manager: mgr, Fleet: fleetName,
		Owners: []client.Object{metadataOfPod()}, Kinds: []client.Object{&PodGhost{}},
		DependentsIn: mcowner.Clusters{Local: true}, Namespaces: []string{namespace}, Cached: true,
		Sweep: orphans.Sweep{Interval: sweep},
	})
}

// ghosts reconciles Pods.
type ghosts struct {
	client.Client // of the local cluster
	namespace     string
	clusters      *mcmanager.Identities
}

// Reconcile has a Pod of whatever cluster have its ghost, and one that is gone have none.
func (g *ghosts) Reconcile(ctx context.Context, req mcreconcile.Request) (ctrl.Result, error) {
	source := mcreconcile.ClusterFrom(ctx)
	pod := metadataOfPod()
	err := source.GetClient().Get(ctx, req.NamespacedName, pod)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, g.remove(ctx, req)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	err = g.keep(ctx, req, pod)
	_, owned := errors.AsType[*mcowner.AlreadyOwnedError](err)
	if owned || errors.Is(err, errConflict) {
		source.GetEventRecorder("podghost").Eventf(pod, nil, corev1.EventTypeWarning, "Conflict", "Create",
			"PodGhost %s of the cluster with the ghosts is left alone: %v", g.key(req), err)
		return ctrl.Result{RequeueAfter: lookAgain}, nil
	}
	return ctrl.Result{}, err
}

var errConflict = errors.New("it is not of this Pod")

// keep creates the ghost of a Pod, or changes it to what it is to be.
func (g *ghosts) keep(ctx context.Context, req mcreconcile.Request, pod client.Object) error {
	home, err := g.clusters.Of(ctx, req.ClusterName)
	if err != nil {
		return err
	}
	here, err := g.clusters.Of(ctx, mcreconcile.LocalCluster)
	if err != nil {
		return err
	}
	owner, err := mcowner.ReferenceTo(fleetName, home, pod, g.Scheme())
	if err != nil {
		return err
	}
	key := g.key(req)
	ghost := &PodGhost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	ghost.SetGroupVersionKind(groupVersion.WithKind("PodGhost")) // for the reference, which has it then
	_, err = controllerutil.CreateOrUpdate(ctx, g.Client, ghost, func() error {
		if ghost.UID != "" && !isOf(ghost, req, here) {
			return errConflict
		}
		ghost.Spec = specOf(req, pod.GetUID())
		return mcowner.SetControllerReference(owner, ghost, here)
	})
	return err
}

// remove deletes the ghost of a Pod that is gone, or leaves it to another owner that it has. A Pod of another cluster that had the name is not.
func (g *ghosts) remove(ctx context.Context, req mcreconcile.Request) error {
	home, err := g.clusters.Of(ctx, req.ClusterName)
	if err != nil {
		return err
	}
	here, err := g.clusters.Of(ctx, mcreconcile.LocalCluster)
	if err != nil {
		return err
	}
	ghost := &PodGhost{}
	if err := g.Get(ctx, g.key(req), ghost); err != nil || !isOf(ghost, req, here) {
		return client.IgnoreNotFound(err)
	}
	owner, _ := mcowner.ControllerOf(ghost, here)
	if mcowner.Differ(owner.ClusterUID, home.UID) {
		return nil
	}
	released := ghost.DeepCopy()
	mcowner.RemoveReference(owner, released)
	if others, err := mcowner.References(released, here); err != nil || len(others)+len(released.OwnerReferences) > 0 {
		return client.IgnoreNotFound(g.Patch(ctx, released, client.MergeFromWithOptions(ghost, client.MergeFromWithOptimisticLock{})))
	}
	return client.IgnoreNotFound(g.Delete(ctx, ghost, client.Preconditions{UID: &ghost.UID, ResourceVersion: &ghost.ResourceVersion}))
}

// key is that of the ghost. Pods of the same name have ghosts of different names.
func (g *ghosts) key(req mcreconcile.Request) client.ObjectKey {
	return client.ObjectKey{Namespace: g.namespace, Name: mcowner.UniqueName(63, string(req.ClusterName), req.Namespace, req.Name)}
}

// specOf returns the spec of the ghost of a Pod. All but the UID never changes.
func specOf(req mcreconcile.Request, pod types.UID) PodGhostSpec {
	return PodGhostSpec{Cluster: string(req.ClusterName), Namespace: req.Namespace, Name: req.Name, UID: pod}
}

// isOf reports whether a ghost is that of the Pod that a request names, and says so.
func isOf(ghost *PodGhost, req mcreconcile.Request, in mcowner.ClusterID) bool {
	owner, ok := mcowner.ControllerOf(ghost, in)
	return ok && owner.Fleet == fleetName && owner.Request() == req && ghost.Spec == specOf(req, ghost.Spec.UID)
}

func metadataOfPod() *metav1.PartialObjectMetadata {
	pod := &metav1.PartialObjectMetadata{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}
