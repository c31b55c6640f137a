package eventlog

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Recorders makes recorders of the old API of events. Those of controller-runtime log to klog, whatever logger they are
// given. It is safe for concurrent use.
type Recorders struct {
	scheme *runtime.Scheme
	logger logr.Logger
	sink   func() (record.EventSink, error)

	mu          sync.RWMutex // guards what follows, and that nothing is recorded once it has ended
	ended       bool
	broadcaster record.EventBroadcaster // nil before the first event
}

// NewRecorders returns recorders for objects of the scheme. They cost nothing before the first event, when sink is called.
func NewRecorders(scheme *runtime.Scheme, logger logr.Logger, sink func() (record.EventSink, error)) *Recorders {
	return &Recorders{scheme: scheme, logger: logger, sink: sink}
}

// End ends them. Events that come later are dropped.
func (r *Recorders) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; r.broadcaster != nil {
		r.broadcaster.Shutdown()
	}
}

// begin starts what events are sent with, unless that was done.
func (r *Recorders) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.broadcaster != nil {
		return
	}
	sink, err := r.sink()
	if err != nil {
		r.logger.Error(err, "Cannot record events")
		return
	}
	r.broadcaster = record.NewBroadcaster(record.WithContext(logr.NewContext(context.Background(), r.logger)))
	r.broadcaster.StartRecordingToSink(sink)
}

// For returns the recorder of a component.
func (r *Recorders) For(component string) record.EventRecorder {
	return recorder{r, sync.OnceValue(func() record.EventRecorder {
		r.begin()
		r.mu.RLock()
		defer r.mu.RUnlock()
		if r.broadcaster == nil {
			return nil
		}
		return r.broadcaster.NewRecorder(r.scheme, corev1.EventSource{Component: component})
	})}
}

type recorder struct {
	all  *Recorders
	made func() record.EventRecorder // nil if there is none
}

// send calls what records, unless it is over.
func (r recorder) send(by func(record.EventRecorder)) {
	made := r.made()
	r.all.mu.RLock()
	defer r.all.mu.RUnlock()
	if made != nil && !r.all.ended {
		by(made)
	}
}

// Event implements record.EventRecorder.
func (r recorder) Event(object runtime.Object, eventtype, reason, message string) {
	r.send(func(made record.EventRecorder) { made.Event(object, eventtype, reason, message) })
}

// Eventf implements record.EventRecorder.
func (r recorder) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	r.send(func(made record.EventRecorder) { made.Eventf(object, eventtype, reason, format, args...) })
}

// AnnotatedEventf implements record.EventRecorder.
func (r recorder) AnnotatedEventf(
	object runtime.Object, annotations map[string]string, eventtype, reason, format string, args ...any,
) {
	r.send(func(made record.EventRecorder) {
		made.AnnotatedEventf(object, annotations, eventtype, reason, format, args...)
	})
}
