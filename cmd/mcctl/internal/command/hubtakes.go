package command

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/internal/notfound"
)

// hubTakes makes sure that the hub takes what the plan has for it: by then the member has all that it needs. It writes nothing.
func (p joinPlan) hubTakes(ctx context.Context, hub *reached) error {
	objects := p.hub
	if p.minted {
		secret, err := p.secret(ctx, hub)
		if err != nil {
			return err
		}
		objects = append(slices.Clone(objects), secret)
	}
	if err := hub.unclaimed(ctx, objects, p.mark); err != nil {
		return err
	}
	return hub.takes(ctx, objects, p.mark)
}

// secret returns the minter's Secret with the token that is there. A Secret of that name that is for something else is an error.
func (p joinPlan) secret(ctx context.Context, hub *reached) (*corev1.Secret, error) {
	wanted := membership.MinterSecret(p.target, p.rights.Account, "")
	found := &corev1.Secret{}
	err := hub.Get(ctx, client.ObjectKeyFromObject(wanted), found)
	if notfound.Is(err, wanted.Name) {
		return wanted, nil
	}
	if err != nil {
		return nil, hub.failed("read", wanted, err)
	}
	if !p.mark.isOn(found) && !ofMinter(found) {
		return nil, fmt.Errorf("%s in the hub (%s) is in the way: others have made it, and it is not that of a minter. Nothing was written; "+
			"give it or the member another name", describe(wanted), hub.config.Host)
	}
	return membership.MinterSecret(p.target, p.rights.Account, string(found.Data[accessv1alpha1.MinterToken])), nil
}

// ofMinter reports whether a Secret has the keys without which a minter's is of no use.
func ofMinter(secret *corev1.Secret) bool {
	for _, key := range []string{
		accessv1alpha1.MinterToken, accessv1alpha1.MinterServer, accessv1alpha1.MinterNamespace, accessv1alpha1.MinterServiceAccount,
	} {
		if len(secret.Data[key]) == 0 {
			return false
		}
	}
	return true
}
