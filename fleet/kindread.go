package fleet

import (
	"context"

	"github.com/fleet-runtime/fleet-runtime/internal/closed"
	"github.com/fleet-runtime/fleet-runtime/internal/informer"
	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

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
		return nil, nil, k.notSyncedLocked(key, s, f.why)
	}
	return s.informer.HasSyncedChecker().Done(), s.stirredLocked(), nil
}
