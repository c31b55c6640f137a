package fleet

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// retrying is an informer's lister and watcher that does not give up: it retries what may pass, reports why it has to, and
// tries again at once when the member is restored. An informer left to itself would pause for up to a minute, and nobody
// could see why it has not synced.
type retrying struct {
	toolscache.ListerWatcherWithContext
	key   informer.Key
	kind  *kind
	kinds *kinds
	wire  *wire
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
	list, err := try(ctx, r, listing, opts, false, func() (runtime.Object, error) {
		return r.ListerWatcherWithContext.ListWithContext(ctx, opts)
	})
	r.listed.Store(err == nil)
	return list, err
}

// WatchWithContext implements ListerWatcherWithContext.
func (r *retrying) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	listed, rotated := r.listed.Swap(false), r.watched.Load() != r.wire.current.Load()
	sure := listed || rotated // that the version is the server's: else it may have ended the last watch
	watching, err := try(ctx, r, watching, opts, listed, func() (watch.Interface, error) {
		if !sure && opts.SendInitialEvents == nil {
			if err := r.mustNotBeRestored(ctx, opts.ResourceVersion); err != nil {
				return nil, err
			}
		}
		sure = false // for the next attempt
		r.watched.Store(r.wire.current.Load())
		return r.ListerWatcherWithContext.WatchWithContext(ctx, opts)
	})
	switch {
	case err != nil && ctx.Err() != nil:
		err = io.EOF // an ordinary end, of which the reflector logs nothing
	case opts.SendInitialEvents == nil:
	case err == nil:
		r.kinds.report(r, listing, nil) // no list follows
	case isExpired(err) && opts.ResourceVersion == "":
		err = errors.New(err.Error()) // of which the reflector does not know that it is expired: it would ask again without a pause
	}
	return watching, err
}

// mustNotBeRestored returns an error upon which all is listed anew if the server's storage has gone back behind the version
// from which a watch is to go on: it was restored from a backup. The server would send nothing until it gets there
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
	r.kinds.log.Info("The storage of the cluster has gone back to an earlier version; listing everything anew",
		"kind", r.key.GVK.Kind, "group", r.key.GVK.Group, "version", accessor.GetResourceVersion(), "before", version)
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

// try makes a request until there is an answer for the reflector. listed tells of a watch that follows a list at once.
func try[T any](
	ctx context.Context, r *retrying, what stage, opts metav1.ListOptions, listed bool, request func() (T, error),
) (T, error) {
	pauses := retry.Pauses(r.kinds.most)
	for {
		r.wire.health.awaitReady(ctx) // one that cannot be reached has probes, and needs no requests beside them
		result, err := request()
		if ctx.Err() != nil {
			return result, oneline.Error(err, maxMessage) // client-go logs it
		}
		verdict := judge(what, opts, listed, err)
		if verdict != protocol {
			r.kinds.report(r, what, err)
		}
		if verdict != passing {
			return result, oneline.Error(err, maxMessage)
		}
		r.kinds.pause(ctx, pauses.Step())
		listed = false // that was a while ago
	}
}

// pause waits for the next attempt to list or watch a kind, at least so long. Those of all members that wait take turns.
func (k *kinds) pause(ctx context.Context, least time.Duration) {
	k.missing.down.Add(1)
	defer k.missing.down.Add(-1)
	retry.PauseFor(ctx, k.missing.pause(least), k.restored())
}

// verdict is what becomes of an answer to a list or a watch.
type verdict int

const (
	// success is reported, and goes to the reflector.
	success verdict = iota
	// protocol goes to the reflector, which expects it and lists anew. It is no failure.
	protocol
	// refused is a failure that goes to the reflector, which lists anew after a pause of its own.
	refused
	// passing is a failure of which the reflector is not to know: the same request may work later.
	passing
)

// judge decides by what the reflector does next.
func judge(what stage, opts metav1.ListOptions, listed bool, err error) verdict {
	streams := opts.SendInitialEvents != nil // an ordinary list follows if that is refused
	versioned := opts.ResourceVersion != "" || opts.Continue != ""
	switch {
	case err == nil:
		return success
	case streams && (isExpired(err) || isRefusal(err) || isMissing(err)), isExpired(err) && versioned && !listed:
		return protocol
	case isExpired(err):
		return refused
	case isRefusal(err), what == watching && isMissing(err):
		return refused
	default:
		return passing
	}
}

// isExpired reports whether the server does not have the resource version any more, or yet.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// isRefusal reports whether the server does not take the request as it is.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotAcceptable(err) || apierrors.IsMethodNotSupported(err)
}

// isMissing reports whether a right or the kind is missing. A list may work where a watch does not.
func isMissing(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }
