package fleet

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
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
	missing  *outage       // the fleet's, of kinds that cannot be mapped, indexed, listed or watched
	join     func() (leave func(), err error)
	restored func() <-chan struct{} // is closed when it is worth while to try again at once
	onChange func()                 // called without the lock when a kind began or ceased to fail, or the reason is another
	// open maps a kind and makes its informers, which it does not wait for. index adds an index to them.
	open  func(context.Context, informer.Key) (cache.Informer, error)
	index func(context.Context, *index) error

	mu sync.RWMutex // guards what follows, and the fields of each kind
	of map[informer.Key]*kind
}

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
	k.log, k.most, k.onChange = m.logger(), m.fleet.opts.MaxRetryPeriod, m.changed
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
		released = err == nil
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
