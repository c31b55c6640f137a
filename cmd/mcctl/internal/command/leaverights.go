package command

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hubError is what went wrong with the hub while the member was looked into. So the member is not taken for the one that cannot be reached.
type hubError struct{ error }

func (e hubError) Unwrap() error { return e.error }

// mustSee returns why nothing may be changed after a look into the member has failed. A member that is merely away is none of that, unless the
// caller has stopped waiting for it.
func (l *leave) mustSee(ctx context.Context, member *reached, failed error) error {
	_, ofHub := errors.AsType[hubError](failed)
	switch {
	case ofHub:
		return fmt.Errorf("nothing was changed, since the hub has to be asked first what is of the member: %w", failed)
	case failed != nil && ctx.Err() != nil:
		return fmt.Errorf("nothing was changed: %w", failed)
	case errors.Is(failed, errSameCluster), errors.Is(failed, errOtherCluster):
		return failed
	case !l.force && (apierrors.IsForbidden(failed) || apierrors.IsUnauthorized(failed)):
		return fmt.Errorf("nothing was changed, since you may not read in the member (%s) what mcctl join has made there. Name a context whose user may, "+
			"or go on without the member with --force: %w", member.config.Host, failed)
	default:
		return nil
	}
}

// removeSecrets removes Secrets of the hub. By force it goes on past one that the caller may not delete.
func (l *leave) removeSecrets(ctx context.Context, hub *reached, secrets []client.Object, progress progress) error {
	for _, secret := range secrets {
		err := hub.remove(ctx, []client.Object{secret}, progress)
		if err == nil {
			continue
		}
		if !l.force || !apierrors.IsForbidden(err) {
			return err
		}
		tellf(l.streams.ErrOut, "%s: %s\n", string(l.name), l.name.in(err.Error()))
		tellf(l.streams.Out, "# In the hub:\nkubectl --namespace %s delete secret %s\n", secret.GetNamespace(), secret.GetName())
	}
	return nil
}
