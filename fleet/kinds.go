package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/closed"
	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// kinds owns what one engagement knows of each kind: whether it is mapped, listed, watched and indexed, and what of that
// fails, since when and why. A failing kind of a member is a state of that pair alone.
//
//	unknown  somebody wants it → one attempt for all that ask: its informers are made, and get the fleet's indexes
//	failed   those that ask are told why, until the next attempt is due; a minute after it was last wanted it is forgotten
//	mapped   the informers list and watch, and report; readers wait until that works or fails
//	served   it is read from the cache, whatever fails from now on
//
// Nothing runs while nobody asks.
type kinds struct {
	cluster  ClusterName
	ctx      context.Context //nolint:containedctx // the engagement's
	log      logr.Logger
	most     time.Duration // the longest pause between attempts
	indexes  *indexes      // the fleet's
	missing  *outage       // the fleet's, of kinds that cannot be mapped or indexed
	join     func() (leave func(), err error)
	restored func() <-chan struct{} // is closed when it is worth while to try again at once
	onChange func()                 // called without the lock when a kind began or ceased to fail, or the reason is another
	// open maps a kind and makes its informers, which it does not wait for. index adds an index to them.
	open  func(context.Context, informer.Key) (cache.Informer, error)
	index func(context.Context, *index) error

	mu sync.RWMutex // guards what follows, and the fields of each kind
	of map[informer.Key]*kind
}

// kind is what is known of one kind.
type kind struct {
	mapped   bool
	served   bool        // it was synced once
	read     atomic.Bool // since it was last to be released
	informer cache.Informer
	indexed  map[string]struct{} // the fields that the fleet indexes, and that have been added
	waiting  int                 // sources that wait until it is mapped
	wanted   time.Time           // when somebody last asked for it before it was mapped, or for an index before it was there
	trying   chan struct{}       // closed when the attempt is over that is under way; nil if none is
	again    *again              // nil if no attempt failed
	failing  map[step]failure    // nil if nothing ever failed
	stirred  chan struct{}       // closed at the next change; nil if nobody waits for one
}

// again is when to try again after an attempt that failed.
type again struct {
	due      time.Time
	restored <-chan struct{}
	pauses   wait.Backoff
	expiry   *time.Timer
}

// step is one thing about a kind that can fail.
type step struct {
	what  stage
	by    *retrying // of several informers of the kind, the one that lists or watches
	field string    // that is indexed
}

type stage int

const (
	mapping stage = iota
	listing
	watching
	indexing
)

type failure struct {
	why   error
	since time.Time
}

// forgetAfter is how long a kind is kept that could not be mapped, or an index that could not be added, and that nobody
// wants any more.
const forgetAfter = time.Minute

func newKinds(ctx context.Context, cluster ClusterName) *kinds {
	return &kinds{
		cluster: cluster, ctx: ctx, log: logr.Discard(), most: time.Second, indexes: &indexes{}, missing: &outage{},
		join:     func() (func(), error) { return func() {}, nil },
		restored: func() <-chan struct{} { return nil },
		onChange: func() {},
		open:     func(context.Context, informer.Key) (cache.Informer, error) { return nil, nil },
		of:       map[informer.Key]*kind{},
	}
}

// configure makes these the kinds of a member's engagement.
func (k *kinds) configure(m *member, e *Engagement) {
	k.log, k.most, k.onChange = m.log, m.fleet.opts.MaxRetryPeriod, m.changed
	k.indexes, k.missing = &m.fleet.indexes, &m.fleet.missing
	k.join = func() (func(), error) {
		_, leave, err := e.Join(e.ctx, k)
		return leave, err
	}
	k.restored = func() <-chan struct{} {
		if e.wire == nil {
			return nil
		}
		return e.wire.health.isRestored()
	}
}

// String names an attempt for a person who wonders what keeps a member from being drained.
func (k *kinds) String() string { return "an attempt to list a kind" }

// ensure returns once the informers of a kind are there, with the fleet's indexes of these fields, or why they are not.
func (k *kinds) ensure(ctx context.Context, key informer.Key, fields ...string) error {
	for {
		over, err := k.want(key, fields)
		if over == nil {
			return err
		}
		if err := k.wait(ctx, key, over, nil, nil); err != nil {
			return err
		}
	}
}

// want begins an attempt if one is needed and due. It returns what is closed when that is over, nil if there is none.
func (k *kinds) want(key informer.Key, fields []string) (over <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.getLocked(key)
	if k.hasLocked(key, s, fields) {
		return nil, nil
	}
	s.wanted = time.Now()
	if s.trying != nil {
		return s.trying, nil
	}
	if f := s.missing(fields); f != nil && !s.again.isDue() {
		return nil, k.notSynced(key, f.why)
	}
	leave, err := k.join()
	if err != nil {
		return nil, err
	}
	s.trying = make(chan struct{})
	go func() {
		defer leave()
		k.attempt(key, s)
	}()
	return s.trying, nil
}

// hasLocked reports whether a kind has informers, and the fleet's indexes of these fields.
func (k *kinds) hasLocked(key informer.Key, s *kind, fields []string) bool {
	return s.mapped && !slices.ContainsFunc(fields, func(field string) bool {
		_, has := s.indexed[field]
		return !has && k.indexes.has(key, field)
	})
}

// missing returns why an attempt failed that is needed to read by these fields.
func (s *kind) missing(fields []string) *failure {
	if f, failed := s.failing[step{what: mapping}]; failed {
		return &f
	}
	for _, field := range fields {
		if f, failed := s.failing[step{what: indexing, field: field}]; failed {
			return &f
		}
	}
	return nil
}

func (a *again) isDue() bool {
	select {
	case <-a.restored:
		return true
	default:
		return !time.Now().Before(a.due)
	}
}

// attempt makes the informers of a kind, unless it has them, and adds the indexes that they lack.
func (k *kinds) attempt(key informer.Key, s *kind) {
	restored := k.restored()
	k.mu.RLock()
	mapped, made, indexed := s.mapped, s.informer, s.indexed
	k.mu.RUnlock()
	var err error
	if !mapped {
		made, err = k.open(k.ctx, key)
	}
	results := map[step]error{{what: mapping}: err}
	if err == nil {
		for _, i := range k.indexes.missing(key, indexed) {
			results[step{what: indexing, field: i.field}] = k.index(k.ctx, i)
		}
	}
	k.update(key, "", func() {
		s.mapped, s.informer = err == nil, made
		k.settleLocked(key, s, results, restored)
		s.overLocked()
	})
}

// settleLocked notes what an attempt came to.
func (k *kinds) settleLocked(key informer.Key, s *kind, results map[step]error, restored <-chan struct{}) {
	failed := false
	added := map[string]struct{}{}
	for field := range s.indexed {
		added[field] = struct{}{}
	}
	for at, err := range results {
		s.noteLocked(at, err)
		failed = failed || err != nil
		if at.what == indexing && err == nil {
			added[at.field] = struct{}{}
		}
	}
	s.indexed = added
	switch {
	case !failed && s.again != nil:
		s.again.expiry.Stop()
		k.forgetLocked(s)
	case failed && s.again == nil:
		k.missing.down.Add(1)
		s.again = &again{pauses: retry.Pauses(k.most), expiry: time.AfterFunc(forgetAfter, func() { k.expire(key, s) })}
		fallthrough
	case failed:
		s.again.due, s.again.restored = time.Now().Add(k.missing.pause(s.again.pauses.Step())), restored
	}
}

// forgetLocked ends that an attempt has failed.
func (k *kinds) forgetLocked(s *kind) {
	s.again = nil
	k.missing.down.Add(-1)
}

func (s *kind) noteLocked(at step, err error) {
	if err == nil {
		delete(s.failing, at)
		return
	}
	f, failed := s.failing[at]
	if !failed {
		f.since = time.Now()
	}
	if s.failing == nil {
		s.failing = map[step]failure{}
	}
	f.why = err
	s.failing[at] = f
	s.stirLocked()
}

// overLocked ends an attempt.
func (s *kind) overLocked() {
	close(s.trying)
	s.trying = nil
	s.stirLocked()
}

func (s *kind) stirLocked() {
	if s.stirred != nil {
		close(s.stirred)
		s.stirred = nil
	}
}

// expire forgets that attempts failed, if nobody has asked for a while.
func (k *kinds) expire(key informer.Key, s *kind) {
	k.update(key, nobodyAsks, func() {
		left := forgetAfter - time.Since(s.wanted)
		switch {
		case s.again == nil:
			return
		case s.trying != nil || s.waiting > 0:
			s.again.expiry.Reset(forgetAfter)
			return
		case left > 0:
			s.again.expiry.Reset(left)
			return
		}
		k.forgetLocked(s)
		for at := range s.failing {
			if at.what == mapping || at.what == indexing {
				delete(s.failing, at)
			}
		}
		if !s.mapped && k.of[key] == s {
			delete(k.of, key)
		}
	})
}

// await is ensure for those that go on asking until it works. Its error is that of a context that is done.
func (k *kinds) await(ctx context.Context, key informer.Key, fields ...string) error {
	defer k.beginWaiting(key)()
	for {
		if k.ensure(ctx, key, fields...) == nil {
			return nil
		}
		if err := k.over(ctx); err != nil {
			return err
		}
		k.mu.Lock()
		s := k.getLocked(key)
		var next again // at once if it was forgotten this very moment
		if s.again != nil {
			next = *s.again
		}
		stirred := s.stirredLocked()
		k.mu.Unlock()
		timer := time.NewTimer(time.Until(next.due))
		_ = k.wait(ctx, key, stirred, timer.C, next.restored)
		timer.Stop()
	}
}

// over returns the error of a context that is done.
func (k *kinds) over(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return context.Cause(k.ctx)
}

func (k *kinds) beginWaiting(key informer.Key) (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.getLocked(key)
	s.waiting++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		s.waiting--
	}
}

// serve returns once a kind can be read from the cache, by these fields, or why it cannot be.
func (k *kinds) serve(ctx context.Context, key informer.Key, fields ...string) error {
	if k.serves(key, fields) {
		return nil
	}
	reconcile := pulse.From(ctx)
	reconcile.Wait(string(k.cluster))
	defer reconcile.Heard(string(k.cluster))
	for !k.serves(key, fields) {
		if err := k.ensure(ctx, key, fields...); err != nil {
			return err
		}
		synced, stirred, err := k.progress(key)
		if err != nil {
			return err
		}
		if err := k.wait(ctx, key, synced, nil, stirred); err != nil {
			return err
		}
	}
	return nil
}

func (k *kinds) serves(key informer.Key, fields []string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	s := k.of[key]
	if s == nil || !s.served || !k.hasLocked(key, s, fields) {
		return false
	}
	if !s.read.Load() { // to write each time would cost readers that run side by side more
		s.read.Store(true)
	}
	return true
}

// progress returns what is closed when the kind is synced, and at the next change; or why it does not sync.
func (k *kinds) progress(key informer.Key) (synced, stirred <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.getLocked(key)
	if !s.mapped {
		return closed.Channel(), nil, nil // its informers were removed this very moment
	}
	if s.informer == nil || s.informer.HasSynced() {
		s.served = true
		return closed.Channel(), nil, nil
	}
	if f := s.oldest(listing, watching); f != nil {
		return nil, nil, k.notSynced(key, f.why)
	}
	return s.informer.HasSyncedChecker().Done(), s.stirredLocked(), nil
}

func (s *kind) stirredLocked() <-chan struct{} {
	if s.stirred == nil {
		s.stirred = make(chan struct{})
	}
	return s.stirred
}

// wait waits for any of these, and returns the error of a context that is done.
func (k *kinds) wait(ctx context.Context, key informer.Key, over <-chan struct{}, timer <-chan time.Time, other <-chan struct{}) error {
	select {
	case <-over:
	case <-timer:
	case <-other:
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s of cluster %q: %w", key.GVK.GroupKind(), k.cluster, context.Cause(ctx))
	case <-k.ctx.Done():
		return context.Cause(k.ctx)
	}
	return nil
}

// knows reports whether a kind has informers.
func (k *kinds) knows(key informer.Key) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	s := k.of[key]
	return s != nil && s.mapped
}

// stateOf returns the state of a kind for an informer that is being made.
func (k *kinds) stateOf(key informer.Key) *kind {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.getLocked(key)
}

// report notes whether an informer can list, or watch. If it was removed, nobody sees its kind any more.
func (k *kinds) report(by *retrying, what stage, err error) {
	k.update(by.key, "", func() { by.kind.noteLocked(step{what: what, by: by}, err) })
}

// remove forgets a kind whose informers do removes. Nobody makes new ones meanwhile.
func (k *kinds) remove(ctx context.Context, key informer.Key, do func() error) error {
	var s *kind
	for {
		k.mu.Lock()
		s = k.getLocked(key)
		over := s.trying
		if over == nil {
			s.trying = make(chan struct{})
			k.mu.Unlock()
			break
		}
		k.mu.Unlock()
		if err := k.wait(ctx, key, over, nil, nil); err != nil {
			return err
		}
	}
	err := do()
	k.update(key, nobodyAsks, func() {
		if err == nil {
			delete(k.of, key)
		}
		s.overLocked()
	})
	return err
}

// release removes the informers of a kind by do, if nobody waits for it, has read it since it was last to be released, or has what
// retire looks for. Nobody gets informers meanwhile.
func (k *kinds) release(key informer.Key, retire func() bool, do func() error) (released bool, err error) {
	k.mu.Lock()
	s := k.of[key]
	if s == nil {
		k.mu.Unlock()
		return true, nil
	}
	if s.read.Swap(false) || s.waiting > 0 || s.trying != nil || !s.mapped {
		k.mu.Unlock()
		return false, nil
	}
	s.mapped, s.trying = false, make(chan struct{})
	k.mu.Unlock()
	if released = retire(); released {
		err = do()
	}
	k.update(key, nobodyAsks, func() {
		s.mapped = !released
		if released {
			delete(k.of, key)
		}
		s.overLocked()
	})
	return released, err
}

func (k *kinds) getLocked(key informer.Key) *kind {
	s := k.of[key]
	if s == nil {
		s = &kind{}
		k.of[key] = s
	}
	return s
}

const nobodyAsks = "Nobody asks any more for a kind that cannot be listed"

// update makes a change, and tells if a kind began or ceased to fail by it, or fails for another reason. ended is logged
// if it ceased to, by default that it works.
func (k *kinds) update(key informer.Key, ended string, change func()) {
	gk := key.GVK.GroupKind()
	k.mu.Lock()
	before := k.failureLocked(gk)
	change()
	after := k.failureLocked(gk)
	k.mu.Unlock()
	if reasonOf(before) == reasonOf(after) || k.ctx.Err() != nil {
		return
	}
	if after == nil {
		k.log.Info(cmp.Or(ended, "Listing and watching works again"), "kind", gk.Kind, "group", gk.Group)
	} else {
		k.log.Info("Cannot list or watch; trying again", "kind", gk.Kind, "group", gk.Group,
			"reason", classify(after.why), "error", message(after.why))
	}
	k.onChange()
}
