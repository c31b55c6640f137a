package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
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
	wire     *wire
	// listed is set when the next watch follows a list, and so goes on from a version that the server just had.
	listed atomic.Bool
	// watched is the generation of the last watch.
	watched atomic.Pointer[generation]
}

var (
	_ toolscache.ListerWatcher            = (*retrying)(nil)
	_ toolscache.ListerWatcherWithContext = (*retrying)(nil)
)

// ListWithContext implements ListerWatcherWithContext.
func (r *retrying) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := try(ctx, r, func() (runtime.Object, error) {
		return r.ListerWatcherWithContext.ListWithContext(ctx, opts)
	})
	r.listed.Store(err == nil)
	return list, err
}

// WatchWithContext implements ListerWatcherWithContext.
func (r *retrying) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	listed, rotated := r.listed.Swap(false), r.watched.Load() != r.wire.current.Load()
	sure := listed || rotated // that the version is the server's: else it may have ended the last watch
	return try(ctx, r, func() (watch.Interface, error) {
		if !sure && opts.SendInitialEvents == nil {
			if err := r.mustNotBeRestored(ctx, opts.ResourceVersion); err != nil {
				return nil, err
			}
		}
		sure = false // for the next attempt
		r.watched.Store(r.wire.current.Load())
		return r.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	})
}

// mustNotBeRestored returns an error that has everything listed anew if the server's storage has gone back behind the
// version from which a watch is to go on: it was restored from a backup. The server would send nothing until it gets there
// again, and then leave out what differs.
func (r *retrying) mustNotBeRestored(ctx context.Context, version string) error {
	if version == "" || version == "0" {
		return nil
	}
	list, err := r.ListerWatcherWithContext.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(accessor.GetResourceVersion(), version)
	if err != nil || order >= 0 { // versions that are no numbers cannot be compared
		return nil //nolint:nilerr // and a server with such versions may do as it likes
	}
	r.log.Info("The storage of the cluster has gone back to an earlier version; listing everything anew",
		"kind", r.gvk.Kind, "group", r.gvk.Group, "version", accessor.GetResourceVersion(), "before", version)
	return apierrors.NewResourceExpired("the storage of the cluster has gone back behind this version")
}

// List implements ListerWatcher, which informers require but do not call where there is a context.
func (r *retrying) List(opts metav1.ListOptions) (runtime.Object, error) {
	return r.ListerWatcherWithContext.ListWithContext(context.Background(), opts)
}

// Watch implements ListerWatcher, like List.
func (r *retrying) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return r.ListerWatcherWithContext.WatchWithContext(context.Background(), opts)
}

func try[T any](ctx context.Context, r *retrying, request func() (T, error)) (T, error) {
	pauses := retry.Pauses(r.most)
	for {
		result, err := request()
		if err == nil || ctx.Err() != nil || !mayPass(err) {
			if r.kinds.report(r.gvk, r, nil) && err == nil {
				r.log.Info("Listing and watching works again", "kind", r.gvk.Kind)
			}
			return result, oneline.Error(err, maxMessage) // client-go logs it
		}
		if r.kinds.report(r.gvk, r, err) {
			r.log.Info("Cannot list or watch; trying again", "kind", r.gvk.Kind, "group", r.gvk.Group,
				"reason", classify(err), "error", message(err))
		}
		retry.Pause(ctx, &pauses, r.restored())
	}
}

// mayPass reports whether the same request may work later. What is about the request itself, such as a resource version
// that is too old, or a way to list that the server does not know, is the informer's to handle.
func mayPass(err error) bool {
	return !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsBadRequest(err) && !apierrors.IsNotAcceptable(err) && !apierrors.IsMethodNotSupported(err) &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
