package dependents

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// visitWatches watches dependents in members that other replicas work on, where owners of this replica have some: their metadata
// alone, as a guest. It keeps of each which version it has and who owns it. It is a source of work.
type visitWatches struct {
	engine *engine

	mu      sync.Mutex      // guards what follows
	ctx     context.Context //nolint:containedctx // the life of the watches, nil before the controller starts
	end     context.CancelFunc
	watched map[watchKey]*visitWatch
	running sync.WaitGroup
}

// visitWatch is a kind that is watched in a member of another replica.
type visitWatch struct {
	all   *visitWatches
	in    mcreconcile.ClusterName
	kind  remote.Kind
	guest *fleet.Guest
	end   context.CancelFunc

	asked time.Time // guarded by all.mu, as the next
	idle  bool      // nobody needed it when it was last looked

	tried chan struct{} // closed when it was first listed, or could not be

	mu       sync.Mutex // guards what follows
	late     bool       // work was done without it: what it first lists is news
	failing  time.Time  // since when the member gives no answer, zero if it does
	away     bool       // and owners were told so
	unlisted int        // namespaces
}

func newVisitWatches(c *engine) *visitWatches {
	return &visitWatches{engine: c, watched: map[watchKey]*visitWatch{}}
}

// Start implements source.TypedSource. The watches end with ctx.
func (e *visitWatches) Start(ctx context.Context, _ workqueue.TypedRateLimitingInterface[work]) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.end = context.WithCancel(ctx)
	return nil
}

func (e *visitWatches) String() string { return "dependents in members of other replicas" }

// ensure watches a kind in a member that is visited, and waits until it is listed, so that nothing is missed that happens after
// what is read next. Where it cannot be listed, or that takes too long, what is listed later counts as news.
func (e *visitWatches) ensure(ctx context.Context, at remote.Session, k remote.Kind) error {
	w, err := e.of(at, k)
	if err != nil {
		return err
	}
	ctx, cancel := e.engine.access.Bound(ctx)
	defer cancel()
	select {
	case <-w.tried:
		return nil
	case <-w.guest.Context().Done():
		return context.Cause(w.guest.Context())
	case <-ctx.Done():
		w.mu.Lock()
		w.late = true
		w.mu.Unlock()
		return nil
	}
}

// of returns the watch of a kind, which is begun if there is none by this guest.
func (e *visitWatches) of(at remote.Session, k remote.Kind) (*visitWatch, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := watchKey{at.Name(), k.GroupVersionKind}
	if w := e.watched[key]; w != nil && w.guest == at.Guest {
		w.asked, w.idle = time.Now(), false
		return w, nil
	}
	if e.ctx == nil || e.ctx.Err() != nil {
		return nil, errors.New("the controller does not run")
	}
	guest, leave, err := e.engine.access.Manager.GetFleet().SharedGuest(at.Guest.Context(), at.Name()) // there is one: this does not wait
	if err != nil {
		return nil, err
	}
	if guest != at.Guest { // that has ended, and this is the next, which may be watched already
		leave()
		return nil, cmp.Or(context.Cause(at.Guest.Context()), fleet.ErrDisengaged)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	stop := context.AfterFunc(at.Guest.Context(), cancel)
	w := &visitWatch{
		all: e, in: at.Name(), kind: k, guest: at.Guest, end: cancel, asked: time.Now(),
		tried: make(chan struct{}),
	}
	e.watched[key] = w
	e.running.Go(func() {
		defer leave()
		defer stop()
		w.run(ctx)
		e.over(key, w)
	})
	return w, nil
}

// over forgets a watch that has ended. Where its guest has, owners are looked at anew, as nobody tells of what happens now.
func (e *visitWatches) over(key watchKey, w *visitWatch) {
	e.mu.Lock()
	if e.watched[key] == w {
		delete(e.watched, key)
	}
	ended := e.ctx.Err() != nil
	e.mu.Unlock()
	if ended || w.guest.Context().Err() == nil || !e.engine.access.IsElsewhere(key.in) {
		return
	}
	for _, o := range e.engine.ledger.all() {
		if o.concerns(key.in) {
			e.engine.works.addLow(e.engine.placing(o.req, key.in))
		}
	}
}

// endIdle ends watches that nobody has needed for two looks in a row.
func (e *visitWatches) endIdle(since time.Time) {
	e.mu.Lock()
	left := make(map[watchKey]watched, len(e.watched))
	for key, w := range e.watched {
		left[key] = watched{kind: w.kind}
	}
	e.mu.Unlock()
	if len(left) == 0 {
		return
	}
	e.engine.needless(left)
	e.mu.Lock()
	defer e.mu.Unlock()
	for key, w := range e.watched {
		_, needless := left[key]
		if needless = needless && !w.asked.After(since); needless && w.idle {
			w.end()
			delete(e.watched, key) // whoever needs it from now on begins another one
		}
		w.idle = needless
	}
}

// stop ends all watches, and waits for that.
func (e *visitWatches) stop() {
	e.mu.Lock()
	if e.end != nil {
		e.end()
	}
	e.mu.Unlock()
	e.running.Wait()
}

// run watches until ctx is done.
func (w *visitWatch) run(ctx context.Context) {
	cl := w.guest.Cluster()
	from, err := client.NewWithWatch(cl.GetConfig(), client.Options{HTTPClient: cl.GetHTTPClient(), Scheme: cl.GetScheme(), Mapper: cl.GetRESTMapper()})
	if err != nil {
		w.log().Error(err, "Cannot watch dependents in a member of another replica")
		w.mu.Lock()
		w.triedLocked()
		w.mu.Unlock()
		<-ctx.Done()
		return
	}
	namespaces := w.all.engine.cfg.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	w.mu.Lock()
	w.unlisted = len(namespaces)
	w.mu.Unlock()
	var all sync.WaitGroup
	defer all.Wait()
	for _, namespace := range namespaces {
		r := cache.NewReflectorWithOptions(w.listWatch(from, namespace), w.kind.NewMetadata(), &dependentsSeen{of: w}, cache.ReflectorOptions{
			Name: w.all.String(), TypeDescription: w.kind.String(),
		})
		all.Go(func() { r.RunWithContext(klog.NewContext(ctx, logr.Discard())) }) // it tries again by itself
	}
}

func (w *visitWatch) log() logr.Logger {
	return w.all.engine.access.Manager.GetLogger().WithValues("controller", w.all.engine.cfg.name, "cluster", w.in, "kind", w.kind.String())
}

// listWatch lists and watches the metadata of what belongs to the installation.
func (w *visitWatch) listWatch(from client.WithWatch, namespace string) cache.ListerWatcher {
	list := func() *metav1.PartialObjectMetadataList {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(w.kind.GroupVersion().WithKind(w.kind.Kind + "List"))
		return list
	}
	options := func(raw metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, LabelSelector: remote.OfFleet(w.all.engine.cfg.fleet), Raw: &raw}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			l := list()
			return l, w.tell(ctx, from.List(ctx, l, options(raw)))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			events, err := from.Watch(ctx, list(), options(raw))
			return events, w.tell(ctx, err)
		},
	}
}

// tell logs why a kind cannot be watched, which is tried again. Owners are told that the member gives no answer, and looked at once it
// does again: nobody else here would notice, as nothing probes the members of other replicas.
func (w *visitWatch) tell(ctx context.Context, err error) error {
	ended := ctx.Err() != nil // then the error is no news of the member
	w.mu.Lock()
	before := w.away
	if !ended {
		w.noteLocked(err)
	}
	away, since := w.away, w.failing
	if err != nil {
		w.late = w.late || w.unlisted > 0
		w.triedLocked()
	}
	w.mu.Unlock()
	if err != nil && !ended {
		w.log().V(1).Info("Cannot watch dependents in a member of another replica", "error", err.Error())
	}
	if away != before {
		w.turned(since, err)
	}
	return err
}

// awayAfter is how long a member gives no answer until owners are told: about as long as the fleet's own probes take.
const awayAfter = 10 * time.Second

// noteLocked notes whether the member gives an answer, which may be an error, that it does not serve the kind, or too large.
func (w *visitWatch) noteLocked(err error) {
	_, is := errors.AsType[*apierrors.StatusError](err)
	switch {
	case is || !isUnanswered(err):
		w.failing, w.away = time.Time{}, false
	case w.failing.IsZero():
		w.failing = time.Now()
	default:
		w.away = w.away || time.Since(w.failing) >= awayAfter
	}
}

// turned has the owners that are concerned know since when the member gives no answer, or looks at them since it does again, if that is zero.
// Those of which a plan is yet to be done hear of it by that.
func (w *visitWatch) turned(since time.Time, err error) {
	c := w.all.engine
	for _, o := range c.ledger.all() {
		if !o.concerns(w.in) {
			continue
		}
		looks := c.placing(o.req, w.in)
		if since.IsZero() {
			c.works.addLow(looks)
			continue
		}
		if v, is := o.inDone(w.in); is {
			c.report(o, looks, v, failed(w.in, v, &fleet.StateError{Err: fleet.ErrNotReady, Status: fleet.Status{
				Name: w.in, State: fleet.Unreachable, Since: since, Reason: fleet.ReasonOf(err), Message: oneline.Text(err.Error(), longestMessage),
			}}))
		}
	}
}

func (w *visitWatch) triedLocked() {
	select {
	case <-w.tried:
	default:
		close(w.tried)
	}
}

// listed notes that a namespace was listed, or all. It returns whether what was listed first is news.
func (w *visitWatch) listed() (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unlisted--; w.unlisted == 0 {
		w.triedLocked()
	}
	return w.late
}

// news has the owners of a dependent worked on, and what waits for it.
func (w *visitWatch) news(name types.NamespacedName, owners ...mcreconcile.Request) {
	c := w.all.engine
	for _, found := range c.watches.newsOf(w.in, w.kind, name, owners) {
		c.works.add(found)
	}
}

// dependentsSeen is a cache.ReflectorStore, which one goroutine uses.
type dependentsSeen struct {
	of     *visitWatch
	listed bool
	seen   map[types.NamespacedName]visitSeen
}

// visitSeen is what is kept of a dependent. Of its owners those of other replicas are kept too: they may be this one's when it goes.
type visitSeen struct {
	uid     types.UID
	version string
	owners  []mcreconcile.Request
}

// Add implements cache.ReflectorStore.
func (s *dependentsSeen) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *dependentsSeen) Update(obj any) error {
	if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
		s.update(meta, true)
	}
	return nil
}

func (s *dependentsSeen) update(obj *metav1.PartialObjectMetadata, isNews bool) {
	name := client.ObjectKeyFromObject(obj)
	w := s.of
	before := s.seen[name]
	now := visitSeen{obj.UID, obj.ResourceVersion, w.all.engine.watches.ownersOf(w.kind, obj, w.in)}
	s.seen[name] = now
	if isNews && (before.uid != now.uid || before.version != now.version) {
		w.news(name, slices.Concat(before.owners, now.owners)...)
	}
}

// Delete implements cache.ReflectorStore.
func (s *dependentsSeen) Delete(obj any) error {
	if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
		s.gone(client.ObjectKeyFromObject(meta))
	}
	return nil
}

func (s *dependentsSeen) gone(name types.NamespacedName) {
	before, was := s.seen[name]
	delete(s.seen, name)
	if was {
		s.of.news(name, before.owners...)
	}
}

// Replace implements cache.ReflectorStore. What was listed first is no news: work waits for it, and reads after that.
func (s *dependentsSeen) Replace(all []any, _ string) error {
	isNews := s.listed
	if s.seen == nil {
		s.seen = make(map[types.NamespacedName]visitSeen, len(all))
	}
	if !s.listed {
		s.listed = true
		isNews = s.of.listed()
	}
	there := make(map[types.NamespacedName]bool, len(all))
	for _, obj := range all {
		if meta, ok := obj.(*metav1.PartialObjectMetadata); ok {
			there[client.ObjectKeyFromObject(meta)] = true
			s.update(meta, isNews)
		}
	}
	for name := range s.seen {
		if !there[name] {
			s.gone(name)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (*dependentsSeen) Resync() error { return nil }
