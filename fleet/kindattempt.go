package fleet

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// again is when to try again after an attempt that failed.
type again struct {
	due      time.Time
	restored <-chan struct{}
	pauses   wait.Backoff
	expiry   *time.Timer
}

// forgetAfter is how long a kind is kept that could not be mapped, or an index that could not be added, and that nobody
// wants any more.
const forgetAfter = time.Minute

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
		return nil, k.notSyncedLocked(key, s, f.why)
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
		err := k.ensure(ctx, key, fields...)
		if over := k.over(ctx); over != nil { // also if it has informers: they end
			return over
		}
		if err == nil {
			return nil
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
