package mctest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	pristine *contents
}

// newCleaner remembers what the control plane holds now, while it is new.
func newCleaner(ctx context.Context, config *rest.Config) (*cleaner, error) {
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
	c := &cleaner{clients: clients, metadata: objects}
	// An API server says that it is ready before it has made its own service. The endpoint slice of that is its last object,
	// so a list that begins later lacks none. One that meets it may: what it has read before can have come meanwhile.
	err = wait.PollUntilContextTimeout(ctx, lookEvery, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := clients.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err == nil {
		c.pristine, err = list(ctx, clients.Discovery(), objects)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what a new control plane holds: %w", err)
	}
	return c, nil
}

// clean removes everything that the control plane did not hold when it was new, and returns once it is gone. It returns
// an error that wraps [errChanged] if something that it held then is no longer what it was.
func (c *cleaner) clean(ctx context.Context) error {
	var left error // what the last round could not do
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (done bool, err error) {
		done, left = c.round(ctx)
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

// round removes what it can, and reports whether nothing was left to remove. An error may pass with the next round.
func (c *cleaner) round(ctx context.Context) (done bool, err error) {
	now, err := list(ctx, c.clients.Discovery(), c.metadata)
	if err != nil {
		return false, err
	}
	if err := c.pristine.intact(now); err != nil {
		return false, err
	}
	extra := now.beyond(c.pristine)
	if len(extra) == 0 && slices.Equal(now.resources, c.pristine.resources) {
		return true, nil
	}
	return false, c.remove(ctx, now, extra)
}

// remove deletes what it can of the given objects. Repeated, it leaves none of them.
func (c *cleaner) remove(ctx context.Context, now *contents, extra []object) error {
	each := func(is func(object) bool, do func(context.Context, object, metav1.ObjectMeta) error) error {
		var group errgroup.Group
		group.SetLimit(deletesAtOnce)
		for _, o := range extra {
			if is(o) {
				group.Go(func() error { return do(ctx, o, now.objects[o]) })
			}
		}
		return group.Wait()
	}
	return errors.Join(
		each(isAdmission, c.delete), // they could forbid the other deletions
		each(isNamespace, c.delete), // nothing new can be created there from now on
		each(isOther, c.delete),
		each(isCRD, c.delete),
		each(isNamespace, c.finalize),
	)
}

func isAdmission(o object) bool { return o.resource.Group == "admissionregistration.k8s.io" }

func isNamespace(o object) bool { return o.resource.Group == "" && o.resource.Resource == "namespaces" }

func isCRD(o object) bool { return o.resource.Group == "apiextensions.k8s.io" }

func isOther(o object) bool { return !isAdmission(o) && !isNamespace(o) && !isCRD(o) }

// delete deletes an object, without the grace that a kubelet would give it, and takes its finalizers.
func (c *cleaner) delete(ctx context.Context, o object, meta metav1.ObjectMeta) error {
	resource := c.metadata.Resource(o.resource).Namespace(o.Namespace)
	if meta.DeletionTimestamp == nil {
		now, policy := int64(0), metav1.DeletePropagationBackground
		err := resource.Delete(ctx, o.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, PropagationPolicy: &policy})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting %s: %w", o, err)
		}
	}
	if len(meta.Finalizers) == 0 || isCRD(o) { // the API server has one on CRDs until their objects are gone
		return nil
	}
	_, err := resource.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking the finalizers of %s: %w", o, err)
	}
	return nil
}

// finalize ends a namespace, which a controller manager would do.
func (c *cleaner) finalize(ctx context.Context, o object, _ metav1.ObjectMeta) error {
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
