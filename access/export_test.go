package access

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// SourceOfShortTokens is [Sources.Source], and takes tokens for ones that live for that long.
func (s *Sources) SourceOfShortTokens(a *v1alpha1.ClusterAccess, life time.Duration, told func(Token)) *Source {
	short := s.Source(a, told)
	mint := short.mint
	short.mint = func(ctx context.Context) (Token, error) {
		token, err := mint(ctx)
		token.Expires = time.Now().Add(life)
		return token, err
	}
	short.keep = func(time.Duration) time.Duration { return life / 2 }
	return short
}

// SourceOfManyTokens is [Sources.Source], and makes another token after that long.
func (s *Sources) SourceOfManyTokens(a *v1alpha1.ClusterAccess, after time.Duration, told func(Token)) *Source {
	many := s.Source(a, told)
	many.keep = func(time.Duration) time.Duration { return after }
	return many
}

// KeepMinter renews a minter's token as if it were later.
func (h *Hub) KeepMinter(ctx context.Context, a *v1alpha1.ClusterAccess, later time.Duration) (made, expires time.Time, err error) {
	life, err := h.keepMinter(ctx, a, time.Now().Add(later))
	return life.made, life.expires, err
}

// NewReconciler returns the reconciler of the [Controller].
func NewReconciler(hub *Hub, c client.Client) ctrlReconciler { return &reconciler{hub, c} }

type ctrlReconciler interface {
	Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error)
}

// ImportsOf returns the imports that are looked at when an access has changed.
func (o Imports) ImportsOf(ctx context.Context, c client.Client, a *v1alpha1.ClusterAccess) []ctrl.Request {
	return (&importer{Imports: o, client: c}).importsOf(ctx, a)
}

// SetupAtPace is [Imports.SetupWithManager], and asks a cluster that often, and makes another token after that long.
func (o Imports) SetupAtPace(mgr manager.Manager, checkEvery, keep time.Duration) error {
	return o.setup(mgr, importPace{checkEvery, func(time.Duration) time.Duration { return keep }})
}
