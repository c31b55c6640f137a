package fleet

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// retrying is an informer's lister and watcher that does not give up: it retries what may pass, notes why it has to,
// and tries again at once when the member is restored. An informer left to itself would pause for up to a minute, and
// nobody could see why it has not synced.
type retrying struct {
	toolscache.ListerWatcherWithContext
	gvk      schema.GroupVersionKind
	kinds    *kinds
	restored func() <-chan struct{}
	most     time.Duration
	log      logr.Logger
}

var (
	_ toolscache.ListerWatcher            = (*retrying)(nil)
	_ toolscache.ListerWatcherWithContext = (*retrying)(nil)
)

// ListWithContext implements ListerWatcherWithContext.
func (r *retrying) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return retry(ctx, r, func() (runtime.Object, error) {
		return r.ListerWatcherWithContext.ListWithContext(ctx, opts)
	})
}

// WatchWithContext implements ListerWatcherWithContext.
func (r *retrying) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return retry(ctx, r, func() (watch.Interface, error) {
		return r.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	})
}

// List implements ListerWatcher, which informers require but do not call where there is a context.
func (r *retrying) List(opts metav1.ListOptions) (runtime.Object, error) {
	return r.ListerWatcherWithContext.ListWithContext(context.Background(), opts)
}

// Watch implements ListerWatcher, like List.
func (r *retrying) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return r.ListerWatcherWithContext.WatchWithContext(context.Background(), opts)
}

func retry[T any](ctx context.Context, r *retrying, request func() (T, error)) (T, error) {
	pause := backoff{most: r.most}
	for {
		result, err := request()
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			if r.kinds.report(r.gvk, r, nil) && err == nil {
				r.log.Info("Listing and watching works again", "kind", r.gvk.Kind)
			}
			return result, err
		}
		if r.kinds.report(r.gvk, r, err) {
			r.log.Info("Cannot list or watch; trying again", "kind", r.gvk.Kind, "group", r.gvk.Group,
				"reason", classify(err), "error", message(err))
		}
		timer := time.NewTimer(pause.next())
		select {
		case <-timer.C:
		case <-r.restored():
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// mayPass reports whether the same request may work later. What is about the request itself, such as a resource version
// that is too old, or a way to list that the server does not know, is the informer's to handle.
func mayPass(err error) bool {
	return !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsBadRequest(err) && !apierrors.IsNotAcceptable(err) && !apierrors.IsMethodNotSupported(err) &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
