package mctest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// lookEvery is how often the cleaner looks whether what it has deleted is gone.
	lookEvery = 20 * time.Millisecond
	// deletesAtOnce is how many objects are deleted side by side. More do not go faster on two cores.
	deletesAtOnce = 8
)

// cleaner makes a control plane look new.
type cleaner struct {
	clients  kubernetes.Interface
	metadata metadata.Interface
	storage  *storage

	// What the control plane held and served while it was new.
	pristine *contents
	served   resources
}

// newCleaner remembers what the control plane holds now, while it is new.
func newCleaner(ctx context.Context, config *rest.Config, s *storage) (*cleaner, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1                           // no limit
	config.WarningHandler = rest.NoWarnings{} // deprecated resources are cleaned too
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &cleaner{clients: clients, metadata: objects, storage: s}
	// An API server says that it is ready before it has made its own service. The endpoint slice of that is its last object,
	// so a list that begins later lacks none.
	err = wait.PollUntilContextTimeout(ctx, lookEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := clients.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil {
		c.pristine, err = s.since(ctx, 0)
	}
	if err == nil {
		c.served, err = discover(clients.Discovery())
	}
	if err != nil {
		return nil, fmt.Errorf("reading what a new control plane holds: %w", err)
	}
	return c, nil
}

// clean removes everything that the control plane did not hold when it was new, and returns once it is gone. It returns
// an error that wraps [errChanged] if something that it held then is no longer what it was.
func (c *cleaner) clean(ctx context.Context) error {
	kinds := map[schema.GroupKind]bool{} // of what was removed
	var left error                       // what the last round could not do
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (done bool, err error) {
		done, left = c.round(ctx, kinds)
		if errors.Is(left, errChanged) {
			return false, left
		}
		return done, nil
	})
	if wait.Interrupted(err) && left != nil {
		return fmt.Errorf("%w: %w", err, left)
	}
	return err
}

// round removes what it can, adds its kinds to the given ones, and reports whether nothing was left to remove. An error may
// pass with the next round.
func (c *cleaner) round(ctx context.Context, kinds map[schema.GroupKind]bool) (done bool, err error) {
	now, err := c.storage.since(ctx, c.pristine.revision)
	if err != nil {
		return false, err
	}
	extra, err := now.beyond(c.pristine)
	if err != nil {
		return false, err
	}
	if len(extra) == 0 {
		return c.noticed(ctx, kinds)
	}
	served := c.served
	for _, o := range extra {
		kinds[o.kind] = true
		if _, ok := c.served[o.kind]; !ok {
			served = nil
		}
	}
	if served == nil {
		if served, err = discover(c.clients.Discovery()); err != nil {
			return false, err
		}
	}
	if err := c.remove(ctx, served, extra); err != nil {
		return false, err
	}
	return false, fmt.Errorf("%d objects are not gone, such as %s", len(extra), extra[0])
}

// noticed reports whether the API server itself knows that all objects of these kinds are gone, and CRDs too: it answers
// many requests from caches, which follow etcd.
func (c *cleaner) noticed(ctx context.Context, kinds map[schema.GroupKind]bool) (bool, error) {
	for kind := range kinds {
		resource, ok := c.served[kind]
		if !ok {
			continue // it goes with its CRD
		}
		// This list is as new as etcd, and waits for the cache.
		if _, err := c.metadata.Resource(resource).List(ctx, metav1.ListOptions{}); err != nil {
			return false, fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
		}
	}
	now, err := discover(c.clients.Discovery())
	if err == nil && !maps.Equal(now, c.served) {
		err = fmt.Errorf("%d kinds are served, and %d were", len(now), len(c.served))
	}
	return err == nil, err
}

// remove deletes what it can of the given objects. Repeated, it leaves none of them.
func (c *cleaner) remove(ctx context.Context, served resources, extra []object) error {
	each := func(is func(object) bool, do func(context.Context, metadata.ResourceInterface, object) error) error {
		var group errgroup.Group
		group.SetLimit(deletesAtOnce)
		for _, o := range extra {
			if resource, ok := served[o.kind]; ok && is(o) { // what is no longer served goes with its CRD
				group.Go(func() error { return do(ctx, c.metadata.Resource(resource).Namespace(o.Namespace), o) })
			}
		}
		return group.Wait()
	}
	return errors.Join(
		each(isAdmission, deleteObject), // they could forbid the other deletions
		each(isNamespace, deleteObject), // nothing new can be created there from now on
		each(isOther, deleteObject),
		each(isCRD, deleteObject),
		each(isNamespace, c.finalize),
	)
}

func isAdmission(o object) bool { return o.kind.Group == "admissionregistration.k8s.io" }

func isNamespace(o object) bool { return o.kind == schema.GroupKind{Kind: "Namespace"} }

func isCRD(o object) bool { return o.kind.Group == "apiextensions.k8s.io" }

func isOther(o object) bool { return !isAdmission(o) && !isNamespace(o) && !isCRD(o) }

// deleteObject deletes an object, without the grace that a kubelet would give it, and takes its finalizers.
func deleteObject(ctx context.Context, of metadata.ResourceInterface, o object) error {
	if o.DeletionTimestamp == nil {
		now, policy := int64(0), metav1.DeletePropagationBackground
		err := of.Delete(ctx, o.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &policy})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", o, err)
		}
	}
	if len(o.Finalizers) == 0 || isCRD(o) { // the API server has one on CRDs until their objects are gone
		return nil
	}
	_, err := of.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the finalizers of %s: %w", o, err)
	}
	return nil
}

// finalize ends a namespace, which a controller manager would do.
func (c *cleaner) finalize(ctx context.Context, _ metadata.ResourceInterface, o object) error {
	ns, err := c.clients.CoreV1().Namespaces().Get(ctx, o.Name, metav1.GetOptions{})
	if err == nil {
		ns.Spec.Finalizers = nil
		_, err = c.clients.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizing %s: %w", o, err)
	}
	return nil
}
