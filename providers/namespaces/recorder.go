package namespaces

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
)

// confinedRecorder records events on objects of the member's namespace. An event is written to the namespace of its
// object; one on any other object is dropped, and the log says so.
type confinedRecorder struct {
	recorder recorder.EventRecorder
	member   member
}

// Eventf implements events.EventRecorder.
func (r confinedRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	if r.member.records(regarding, reason) {
		r.recorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
	}
}

// AnnotatedEventf implements events.AnnotatedEventRecorder.
func (r confinedRecorder) AnnotatedEventf(
	regarding, related runtime.Object, annotations map[string]string, eventtype, reason, action, note string, args ...any,
) {
	if r.member.records(regarding, reason) {
		r.recorder.AnnotatedEventf(regarding, related, annotations, eventtype, reason, action, note, args...)
	}
}

// confinedOldRecorder is a confinedRecorder of events of the core group.
type confinedOldRecorder struct {
	recorder record.EventRecorder
	member   member
}

// Event implements record.EventRecorder.
func (r confinedOldRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	if r.member.records(object, reason) {
		r.recorder.Event(object, eventtype, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (r confinedOldRecorder) Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any) {
	if r.member.records(object, reason) {
		r.recorder.Eventf(object, eventtype, reason, messageFmt, args...)
	}
}

// AnnotatedEventf implements record.EventRecorder.
func (r confinedOldRecorder) AnnotatedEventf(
	object runtime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...any,
) {
	if r.member.records(object, reason) {
		r.recorder.AnnotatedEventf(object, annotations, eventtype, reason, messageFmt, args...)
	}
}

// records reports whether events on the object belong to the member.
func (m member) records(object runtime.Object, reason string) bool {
	ref, err := reference.GetReference(m.shared.cluster.GetScheme(), object)
	if err == nil && ref.Namespace != m.namespace {
		err = fmt.Errorf("%s %s/%s: %w %q", ref.Kind, ref.Namespace, ref.Name, ErrOutside, m.namespace)
	}
	if err != nil {
		m.shared.log.Error(err, "An event is dropped", "cluster", m.namespace, "reason", reason)
	}
	return err == nil
}
