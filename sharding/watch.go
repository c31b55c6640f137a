package sharding

import (
	"context"
	"math"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// watch follows the Leases until ctx ends.
func (r *Replica) watch(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.Discard()) // client-go would log each failure
	for ctx.Err() == nil {
		once, cancel := context.WithCancel(ctx)
		r.mu.Lock()
		r.watchAnew, r.watching = cancel, r.clock.now()
		r.mu.Unlock()
		r.reflector().RunWithContext(once)
		cancel()
	}
}

// lister lists before it watches. That shows who owns what even where watches stand still, which lists as streams do not.
type lister struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported is asked for by reflectors.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

func (r *Replica) reflector() *toolscache.Reflector {
	selector := labels.Set{labelSharding: r.opts.ID}.String()
	leases := r.hub.watching
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			opts.LabelSelector, opts.ResourceVersion = selector, "" // from the storage: a server's cache may be late
			list, err := ask(ctx, leases, func(ctx context.Context) (*coordinationv1.LeaseList, error) { return leases.List(ctx, opts) })
			return list, r.watched(ctx, err)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.LabelSelector = selector
			watching, err := leases.Watch(ctx, opts)
			return watching, r.watched(ctx, err)
		},
	}
	return toolscache.NewReflectorWithOptions(lister{lw}, &coordinationv1.Lease{}, view{r}, toolscache.ReflectorOptions{
		Name:    "sharding",
		Backoff: &wait.Backoff{Duration: r.times.step / 4, Cap: r.times.try, Factor: 2, Jitter: 0.5, Steps: math.MaxInt},
	})
}

// watched logs that lists and watches have begun to fail. A list that was given up may fail after the next one has begun.
func (r *Replica) watched(ctx context.Context, err error) error {
	reason := ""
	if err != nil && ctx.Err() == nil {
		reason = fleet.ReasonOf(err)
	}
	r.mu.Lock()
	before := r.watchFailed
	r.watchFailed = reason
	r.mu.Unlock()
	if reason != before && reason != "" {
		r.log.Info("Cannot watch the Leases of replicas", "reason", reason, "error", oneline.Text(err.Error(), maxError))
	}
	return err
}

// checkWatch watches anew if nothing is seen of the session's renewals, although they work: the connection leads nowhere, or the
// server behind it is late. It returns when to look again.
func (r *Replica) checkWatch(s *session) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.watching
	if own := r.peers[s.name]; own != nil && own.heard.mono > last.mono {
		last = own.heard
	}
	silent := r.clock.now().since(last)
	if silent < r.times.valid || s.remaining() <= 0 || r.watchAnew == nil {
		return max(r.times.valid-silent, r.times.step)
	}
	r.log.Info("The watch of the Leases shows nothing of this session's renewals; watching anew", "session", s.name)
	r.hub.watching.redial()
	r.watchAnew()
	r.watchAnew = nil
	return r.times.valid
}
