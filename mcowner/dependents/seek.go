package dependents

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// seekIn looks for owners in a cluster that is none of owners, if it is declared what becomes of them, or of the controller: it may have become
// none while the program did not run. Otherwise only those are found that sweeps see dependents of, which there may be none of once the controller
// is retired. Where replicas share the members, the sweep may be another replica's, and nobody would be told.
func (c *engine) seekIn(name mcreconcile.ClusterName) {
	seeks := c.cfg.onOwnersLeaving != "" || c.cfg.retire != "" || c.access.IsShared() && c.cfg.ownersIn.HasMembers()
	if seeks && !c.access.Within(c.cfg.ownersIn, name) {
		c.works.addLow(work{in: name, task: seek})
	}
}

// seek has the owners of a cluster planned that have a record. A cluster in which they may not be listed has none that this
// program could let go.
func (c *engine) seek(ctx context.Context, at remote.Session) error {
	err := remote.Scan{}.Each(ctx, c.access, at, c.owner, labels.Everything(), func(obj *metav1.PartialObjectMetadata) error {
		if c.keys.On(obj) {
			req := mcreconcile.Request{ClusterName: at.Name()}
			req.NamespacedName = client.ObjectKeyFromObject(obj)
			c.owners.add(req)
		}
		return nil
	})
	if apierrors.IsForbidden(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for owners in %s, which is not one of OwnersIn: %w", at, err)
	}
	return nil
}
