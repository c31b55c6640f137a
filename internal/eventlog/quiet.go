// Package eventlog makes recorders of events tell once why events are not recorded. client-go logs each event that is lost,
// with all that is in it: where the right to record events is missing, that is most of a log.
package eventlog

import (
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// maxError is as much of an error as is logged, in bytes.
const maxError = 400

// Quiet returns a logger for recorders of events. Of lines about events that could not be recorded, it logs one for each
// reason, without the event. Other lines are logged as they are. It is safe for concurrent use.
func Quiet(logger logr.Logger, reasonOf func(error) string) logr.Logger {
	sink := logger.GetSink()
	if sink == nil {
		return logger
	}
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		sink = deep.WithCallDepth(1)
	}
	return logger.WithSink(quiet{LogSink: sink, reasonOf: reasonOf, told: &told{}})
}

type quiet struct {
	logr.LogSink
	reasonOf func(error) string
	told     *told
}

// told keeps what reasons were logged. There are few different ones.
type told struct {
	mu      sync.Mutex // guards reasons
	reasons map[string]bool
}

func (t *told) isNews(reason string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reasons[reason] {
		return false
	}
	if t.reasons == nil {
		t.reasons = map[string]bool{}
	}
	t.reasons[reason] = true
	return true
}

// Info implements logr.LogSink.
func (q quiet) Info(level int, msg string, values ...any) { q.LogSink.Info(level, msg, values...) }

// Error implements logr.LogSink.
func (q quiet) Error(err error, msg string, values ...any) {
	if !isAboutEvent(values) {
		q.LogSink.Error(err, msg, values...)
		return
	}
	// Without an error, it is a consequence of one. A namespace that is being deleted takes no events, which is as it should be.
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	if reason := q.reasonOf(err); q.told.isNews(reason) {
		q.LogSink.Info(0, "Events are not recorded", "reason", reason, "error", oneline.Text(err.Error(), maxError))
	}
}

func isAboutEvent(values []any) bool {
	for i := 0; i+1 < len(values); i += 2 {
		switch values[i+1].(type) {
		case *corev1.Event, *eventsv1.Event:
			return true
		}
	}
	return false
}

// WithValues implements logr.LogSink.
func (q quiet) WithValues(values ...any) logr.LogSink {
	q.LogSink = q.LogSink.WithValues(values...)
	return q
}

// WithName implements logr.LogSink.
func (q quiet) WithName(name string) logr.LogSink {
	q.LogSink = q.LogSink.WithName(name)
	return q
}

// WithCallDepth implements logr.CallDepthLogSink.
func (q quiet) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := q.LogSink.(logr.CallDepthLogSink); ok {
		q.LogSink = deep.WithCallDepth(depth)
	}
	return q
}
