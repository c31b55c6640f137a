package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollEvery is how often the hub is asked while a command waits.
const pollEvery = time.Second

// awaitReady waits until a member is Ready.
func awaitReady(ctx context.Context, hub *reached, name string, timeout time.Duration, to io.Writer) error {
	var why string
	err := wait.PollUntilContextTimeout(ctx, pollEvery, timeout, true, func(ctx context.Context) (bool, error) {
		k, err := hub.find(ctx, name)
		if err != nil {
			why = err.Error() // the hub may be slow, or away for a moment
			return false, nil //nolint:nilerr // it is told at the end
		}
		var is bool
		is, why = k.ready()
		return is, nil
	})
	switch {
	case err == nil:
		tellf(to, "%s is Ready\n", name)
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return &exitError{code: codeNotReady, err: fmt.Errorf("%s is not Ready after %s: %s; see mcctl describe %s", name, timeout, why, name)}
	default:
		return err
	}
}
