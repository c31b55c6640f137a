package mcwebhook

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

const (
	// lookEvery is how often the keeper looks whether there is something to do.
	lookEvery = 10 * time.Second
	// settles is how long API servers are given to notice that a configuration was changed. They do not tell.
	settles = 30 * time.Second
	// lingers is how long the old key and the old authority count after all Ready members have the new ones.
	lingers = time.Hour
	// patience is how long a rotation waits for members that are Ready and in which nothing can be installed, as for lack of a right.
	patience = 7 * 24 * time.Hour
)

// keeper makes the Secret, on any replica, and renews what it holds, on the one that leads. No two change it at once: they compare
// versions.
type keeper struct {
	store     *store
	installer *installer
	elected   <-chan struct{}
	clock     clock.PassiveClock
	every     time.Duration
	news      chan struct{} // has a token when the Secret was changed
	complete  time.Time     // since when all Ready members have what is being installed, zero if they have not
	failing   string        // the reason of the last failure
}

func newKeeper(mgr mcmanager.Manager, s *store, i *installer) *keeper {
	k := &keeper{store: s, installer: i, elected: mgr.Elected(), clock: clock.RealClock{}, every: lookEvery, news: make(chan struct{}, 1)}
	s.follow(func() {
		select {
		case k.news <- struct{}{}:
		default:
		}
	})
	return k
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica needs the Secret.
func (*keeper) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (k *keeper) Start(ctx context.Context) error {
	if err := k.installer.check(); err != nil {
		return err
	}
	if metrics.Registry.Register(k.installer) == nil {
		defer metrics.Registry.Unregister(k.installer)
	}
	ticker := time.NewTicker(k.every)
	defer ticker.Stop()
	for {
		k.tell(ctx, k.look(ctx))
		select {
		case <-ticker.C:
		case <-k.news:
		case <-ctx.Done():
			return nil
		}
	}
}

// tell logs a failure, once for each reason in a row.
func (k *keeper) tell(ctx context.Context, err error) {
	if apierrors.IsConflict(err) { // another replica was quicker
		err = nil
	}
	reason := fleet.ReasonOf(err)
	if ctx.Err() != nil || reason == k.failing {
		return
	}
	if k.failing = reason; err != nil {
		k.store.log.Info("Cannot keep the keys of webhooks; trying again", "reason", reason, "error", err.Error())
	}
}

// look does what is to be done.
func (k *keeper) look(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := k.store.Get(ctx, k.store.key, secret)
	if apierrors.IsNotFound(err) {
		return k.make(ctx)
	}
	if err != nil || !k.leads() {
		return err
	}
	m, err := parse(secret.Data)
	if err != nil {
		return errUnusable
	}
	_, asked := secret.Annotations[AnnotationRotate]
	next, err := k.next(ctx, m, asked)
	if err != nil || next == nil {
		return err
	}
	return k.store.replace(ctx, secret, next)
}

var errUnusable = errors.New("the Secret cannot be used: delete it, and another one is made")

// make makes the Secret: one that was deleted is made as it was.
func (k *keeper) make(ctx context.Context) error {
	m := k.store.now.Load()
	if m == nil {
		var err error
		if m, err = newMaterial(k.opts().Name, k.host(), k.clock.Now()); err != nil {
			return err
		}
	}
	return k.store.create(ctx, m)
}

// next returns what the Secret is to hold next, nil for what it holds.
func (k *keeper) next(ctx context.Context, m *material, asked bool) (*material, error) {
	now, host := k.clock.Now(), k.host()
	switch {
	case m.id == "":
		return m.identify(), nil
	case host != "" && len(m.ca.cert) == 0: // certificates were not the program's own until now
		made, err := newMaterial(k.opts().Name, host, now)
		if err == nil {
			made.id, made.key, made.previousKey = m.id, m.key, m.previousKey
			if len(m.previousKey) > 0 { // it counts for a while still, and no longer
				made.phase, made.since = switched, now
			}
		}
		return made, err
	case host != "" && m.mustRenew(host, now):
		return m.renew(host, now)
	case m.phase == installing && (k.installed(ctx, m, now) || now.Sub(m.since) >= patience):
		return m.switchOver(host, now)
	case m.phase == switched && now.Sub(m.since) >= lingers:
		return m.finish(now), nil
	case m.phase == steady && (asked || host != "" && m.mustRotate(now)):
		k.complete = time.Time{}
		return m.rotate(k.opts().Name, host, now)
	}
	return nil, nil //nolint:nilnil // there is nothing to do
}

// installed reports whether API servers of all Ready members know what is being installed.
func (k *keeper) installed(ctx context.Context, m *material, now time.Time) bool {
	if !k.installer.everywhere(ctx, m) {
		k.complete = time.Time{}
		return false
	}
	if k.complete.IsZero() {
		k.complete = now
	}
	return now.Sub(k.complete) >= settles
}

// leads reports whether this replica is the one that renews.
func (k *keeper) leads() bool {
	select {
	case <-k.elected:
		return true
	default:
		return false
	}
}

func (k *keeper) opts() *Options { return &k.installer.opts }

// host is the one that the program makes certificates for, empty if it makes none.
func (k *keeper) host() string {
	if !k.opts().ownAuthority() {
		return ""
	}
	return k.opts().host()
}
