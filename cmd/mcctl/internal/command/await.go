package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

// pollEvery is how often the hub is asked while a command waits.
const pollEvery = time.Second

// awaitReady waits until a member is Ready, as it has just joined.
func awaitReady(ctx context.Context, hub *reached, target membership.Target, timeout time.Duration, to io.Writer) error {
	// A read that fails tells less than what was read before: the last one fails where the time is over.
	name, why, unread := target.Name, "", ""
	err := wait.PollUntilContextTimeout(ctx, pollEvery, timeout, true, func(ctx context.Context) (bool, error) {
		k, err := hub.find(ctx, name)
		if err != nil {
			unread = err.Error() // the hub may be slow, or away for a moment
			return false, nil    //nolint:nilerr // it is told at the end
		}
		var is bool
		is, why = k.readyAt(target.Server)
		return is, nil
	})
	switch {
	case err == nil:
		tellf(to, "%s is Ready\n", name)
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{code: codeNotReady, err: fmt.Errorf("%s is not Ready after %s: %s; see mcctl describe %s%s", name, timeout, cmp.Or(why, unread), name, inNamespace(target.Namespace))}
	default:
		return err
	}
}
