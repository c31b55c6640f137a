package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
)

// MinterExpiration is how long the minter's own token is asked for, so that the hub may be down for days.
const MinterExpiration = 7 * 24 * time.Hour

// minterLife is of the token in a minter's Secret, by the clock of the cluster that made it. The zero value is of one that says
// nothing of itself.
type minterLife struct {
	made, expires time.Time
	jitter        float64 // of this token, so that those of many clusters are not renewed in step
}

func lifeOf(token string) minterLife {
	c := jwt.ClaimsOf(token)
	if c.Lifetime() == 0 {
		return minterLife{}
	}
	sum := sha256.Sum256([]byte(token))
	return minterLife{c.IssuedAt(), c.ExpiresAt(), renewJitter * float64(sum[0]) / (1 << 8)}
}

// lifeSaidOf is of the token of which a status says it.
func lifeSaidOf(a *v1alpha1.ClusterAccess) minterLife {
	return minterLife{made: a.Status.RenewTime.Time, expires: a.Status.ExpirationTime.Time}
}

// next returns in how long to look at a minter's token again: when it is to be renewed, or, where that has failed, often enough before it expires.
func (l minterLife) next(now time.Time) time.Duration {
	next := l.renewAt().Sub(now)
	if next <= 0 {
		next = l.expires.Sub(now) / 4
	}
	return min(checkEvery, max(next, renewFloor))
}

// renewAt returns when the minter's token is to be renewed. One that does not say when it expires is renewed at once: it may
// never expire, or soon.
func (l minterLife) renewAt() time.Time {
	granted := l.expires.Sub(l.made)
	return l.made.Add(max(renewFloor, time.Duration((renewAfter+l.jitter)*float64(granted))))
}

// endsFor returns an error that says until when a cluster can be used with a minter's token, and why that is not renewed.
func (l minterLife) endsFor(why error) error {
	end := "; it does not say when it expires"
	if !l.expires.IsZero() {
		end = ", and expires at " + l.expires.UTC().Format(time.RFC3339)
	}
	says := fmt.Sprintf("the minter's own token is not renewed (%s)%s", reasonOf(why), end)
	if own, isOwn := errors.AsType[*Error](why); isOwn { // whether the hub refuses or the cluster is news, though both have one reason
		return &Error{v1alpha1.ReasonNotRenewed, says + ": " + own.message, own.cause}
	}
	return &Error{v1alpha1.ReasonNotRenewed, says, why}
}

// clockOf returns the clock of the cluster that has just made a token, or that of this machine where the token does not say when it
// was made.
func clockOf(token Token) func() time.Time {
	issued := jwt.ClaimsOf(token.Value()).IssuedAt()
	if issued.IsZero() {
		return time.Now
	}
	return func() time.Time { return issued.Add(time.Since(token.Made)) }
}

// keepMinter renews the minter's token in its Secret if it is time by the clock of the cluster, and returns the life of the one that is
// there then. Where the Secret cannot be read, that is what the status says. A conflict is an error of the API: somebody else has written the Secret.
func (h *Hub) keepMinter(ctx context.Context, a *v1alpha1.ClusterAccess, now time.Time) (minterLife, error) {
	cfg, err := Config(a.Spec)
	if err != nil {
		return minterLife{}, err
	}
	m, err := h.minterOf(ctx, a)
	switch reasonOf(err) {
	case "":
	case v1alpha1.ReasonHub, v1alpha1.ReasonNotAllowed: // so the token is the one of before, for all that is known
		return lifeSaidOf(a), err
	default:
		return minterLife{}, err
	}
	before := lifeOf(m.token)
	if now.Before(before.renewAt()) {
		return before, nil
	}
	token, err := m.request(ctx, cfg, m.namespace, m.name, int64(MinterExpiration.Seconds()))
	if err != nil {
		return before, err
	}
	after := lifeOf(token.Value())
	if !after.expires.After(before.expires) && !before.expires.IsZero() { // the cluster grants less than it did
		return before, nil
	}
	if !now.Before(after.renewAt()) { // it would be written again and again
		return before, nil
	}
	secret := m.secret.DeepCopy() // with its resource version
	secret.Data[v1alpha1.MinterToken] = []byte(token.Value())
	if _, err := h.core.Secrets(secret.Namespace).Update(quiet(ctx), secret, metav1.UpdateOptions{}); err != nil {
		return before, fromHub("written", secret.Namespace, secret.Name, err)
	}
	return after, nil
}
