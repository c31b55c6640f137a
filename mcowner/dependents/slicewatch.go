package dependents

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
	"github.com/fleet-runtime/fleet-runtime/internal/paths"
	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// sliceWatch finds the slices of owners that are gone, and those that others have changed or deleted.
type sliceWatch struct{ *engine }

// proto is what is watched: the metadata alone.
func (sliceWatch) proto() client.Object {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind(v1alpha1.Kind))
	return meta
}

// in is an mchandler.HandlerFunc.
func (s sliceWatch) in(name mcreconcile.ClusterName, _ cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	return handler.TypedFuncs[client.Object, mcreconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[client.Object], _ queue) {
			if req, ours := s.ownerOf(name, e.Object); ours {
				s.works.addLow(work{req, name, discard})
			}
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[client.Object], _ queue) {
			restored := isOlder(e.ObjectNew, e.ObjectOld) // from a backup of its cluster
			if restored || e.ObjectOld.GetDeletionTimestamp() == nil && e.ObjectNew.GetDeletionTimestamp() != nil {
				s.doubted(name, e.ObjectNew)
			} else {
				s.changed(name, e.ObjectNew)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[client.Object], _ queue) {
			s.doubted(name, e.Object)
		},
	}
}

// doubted has slices read again if others have deleted one, or it is as it was before.
func (s sliceWatch) doubted(in mcreconcile.ClusterName, slice client.Object) {
	req, ours := s.ownerOf(in, slice)
	if o := s.ledger.get(req); ours && o != nil && o.doubtSlice(client.ObjectKeyFromObject(slice)) {
		s.works.add(accountOf(req))
	}
}

// changed has slices read again if others have changed one. Whoever does that time and again has it done once for each pause.
func (s sliceWatch) changed(in mcreconcile.ClusterName, slice client.Object) {
	req, ours := s.ownerOf(in, slice)
	if o := s.ledger.get(req); ours && o != nil && o.sawSlice(client.ObjectKeyFromObject(slice), slice.GetResourceVersion()) {
		s.works.addAfter(accountOf(req), sliceDelay)
	}
}

// ownerOf returns the request for the owner of a slice of this controller. Whoever may write slices may write anything in the place of
// the owner's name.
func (s sliceWatch) ownerOf(name mcreconcile.ClusterName, slice client.Object) (mcreconcile.Request, bool) {
	labels, annotations := slice.GetLabels(), slice.GetAnnotations()
	req := mcreconcile.Request{ClusterName: name}
	req.NamespacedName = types.NamespacedName{
		Namespace: annotations[v1alpha1.OwnerNamespaceAnnotation], Name: annotations[v1alpha1.OwnerNameAnnotation],
	}
	ours := labels[v1alpha1.FleetLabel] == s.cfg.fleet && labels[v1alpha1.ControllerLabel] == s.cfg.name
	return req, ours && req.Name != "" && paths.CheckNames(req.Namespace, req.Name) == nil
}

// discard removes the slices of an owner that is gone, once the API server has said that it is gone. It went without the
// controller: its finalizer was taken by somebody else.
func (c *engine) discard(ctx context.Context, home remote.Session, req mcreconcile.Request) error {
	if c.cfg.slices == nil || !c.access.Within(c.cfg.ownersIn, req.ClusterName) {
		return nil
	}
	if _, err := c.getOwner(ctx, home, req, true); !notfound.Is(err, req.Name) {
		return err
	}
	ctx, cancel := c.access.Bound(ctx)
	defer cancel()
	err := home.Cluster.GetAPIReader().Get(ctx, req.NamespacedName, c.owner.NewMetadata())
	if apierrors.IsNotFound(err) && !notfound.Is(err, req.Name) && c.owner.IsUnserved(home) {
		return nil
	}
	if !notfound.Is(err, req.Name) {
		return err
	}
	apiVersion, kind := c.owner.ToAPIVersionAndKind()
	ref := mcowner.Reference{
		Fleet: c.cfg.fleet, Manager: c.cfg.name, APIVersion: apiVersion, Kind: kind, Namespace: req.Namespace, Name: req.Name,
	}
	namespaces, err := c.shelves(ctx, home, ref)
	for _, namespace := range namespaces {
		err = errors.Join(err, record.Remove(ctx, home.Cluster.GetAPIReader(), home.Cluster.GetClient(), ref, namespace))
	}
	if err != nil && !errors.Is(err, record.ErrNoKind) {
		return fmt.Errorf("removing the slices of %s, which is gone: %w", req, err)
	}
	return nil
}

// shelves returns the namespaces in which slices of an owner may be. Those of an owner in no namespace may be where an earlier configuration has put them.
func (c *engine) shelves(ctx context.Context, home remote.Session, ref mcowner.Reference) ([]string, error) {
	ours := c.cfg.slices.namespaceFor(ref.Namespace)
	if ref.Namespace != "" {
		return []string{ours}, nil
	}
	found, err := record.Namespaces(ctx, home.Cluster.GetCache(), ref)
	if !slices.Contains(found, ours) {
		found = append(found, ours)
	}
	return found, err
}
