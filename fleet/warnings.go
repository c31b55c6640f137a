package fleet

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

const (
	// miscellaneous is the code of warnings that API servers send, see RFC 7234, section 5.5.7.
	miscellaneous = 299
	// firstWarnings are logged of a member at once, and then one in each warningPause: each request may be answered with some.
	firstWarnings = 10
	warningPause  = time.Minute
	// maxWarning is how much of one is logged, in bytes. Headers may have megabytes.
	maxWarning = 300
)

// warnings logs what the API server of a member warns of, such as an API that is about to go. It may be used by several requests at once.
type warnings struct {
	of    ClusterName
	limit *rate.Limiter
}

func newWarnings(of ClusterName) *warnings {
	return &warnings{of, rate.NewLimiter(rate.Every(warningPause), firstWarnings)}
}

// HandleWarningHeaderWithContext implements [rest.WarningHandlerWithContext].
func (w *warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	if code != miscellaneous || text == "" || !w.limit.Allow() {
		return
	}
	log.FromContext(ctx).Info("The member's API server warns", "cluster", w.of, "warning", oneline.Text(text, maxWarning))
}
