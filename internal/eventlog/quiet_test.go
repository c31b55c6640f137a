package eventlog

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
)

var lineNumber = regexp.MustCompile(` "line"=\d+`)

func reasonOf(err error) string {
	if apierrors.IsForbidden(err) {
		return "Forbidden"
	}
	return "Error"
}

func TestOneLineForEachReasonSaysThatEventsAreLost(t *testing.T) {
	var lines []string
	log := Quiet(funcr.New(func(name, line string) { lines = append(lines, name+" "+lineNumber.ReplaceAllString(line, "")) }, funcr.Options{LogCaller: funcr.All}), reasonOf)
	log = log.WithName("events").WithValues("cluster", "east")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no right"))
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("it goes"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for range 3 {
		log.Error(terminating, "Server rejected event", "event", &eventsv1.Event{})
		log.Error(forbidden, "Server rejected event", "event", &eventsv1.Event{})
		log.WithName("other").Error(forbidden, "Server rejected event", "event", &corev1.Event{})
		log.Error(fmt.Errorf("refused\nby %s", "all"), "Unable to write event", "event", &corev1.Event{})
		log.Error(nil, "Unable to write event (retry limit exceeded!)", "event", &corev1.Event{})
	}
	log.Error(forbidden, "something else", "event", "of another kind")
	log.Info("a line")
	func() { log.WithCallDepth(1).Info("from a helper") }()
	want := []string{
		`events "caller"={"file"="quiet_test.go"} "level"=0 "msg"="Events are not recorded" "cluster"="east" "reason"="Forbidden" "error"="events is forbidden: no right"`,
		`events "caller"={"file"="quiet_test.go"} "level"=0 "msg"="Events are not recorded" "cluster"="east" "reason"="Error" "error"="refused by all"`,
		`events "caller"={"file"="quiet_test.go"} "msg"="something else" "error"="events is forbidden: no right" "cluster"="east" "event"="of another kind"`,
		`events "caller"={"file"="quiet_test.go"} "level"=0 "msg"="a line" "cluster"="east"`,
		`events "caller"={"file"="quiet_test.go"} "level"=0 "msg"="from a helper" "cluster"="east"`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestALoggerThatLogsNothingStaysOne(t *testing.T) {
	if sink := Quiet(logr.Logger{}, reasonOf).GetSink(); sink != nil {
		t.Errorf("it logs to %v", sink)
	}
}

// kept is a sink of events that keeps their reasons.
type kept chan string

func (k kept) Create(e *corev1.Event) (*corev1.Event, error)          { k <- e.Reason; return e, nil }
func (k kept) Update(e *corev1.Event) (*corev1.Event, error)          { return e, nil }
func (k kept) Patch(e *corev1.Event, _ []byte) (*corev1.Event, error) { return e, nil }

func TestRecordersBeginWithTheFirstEventAndEnd(t *testing.T) {
	sink, begun := make(kept, 10), 0
	recorders := NewRecorders(scheme.Scheme, logr.Discard(), func() (record.EventSink, error) {
		begun++
		return sink, nil
	})
	one, two := recorders.For("one"), recorders.For("two")
	if begun > 0 {
		t.Error("they have begun before the first event")
	}
	about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	one.Event(about, corev1.EventTypeNormal, "First", "")
	two.Eventf(about, corev1.EventTypeNormal, "Second", "of %s", "two")
	two.AnnotatedEventf(about, map[string]string{"a": "b"}, corev1.EventTypeNormal, "Third", "")
	for _, want := range []string{"First", "Second", "Third"} {
		if got := <-sink; got != want {
			t.Errorf("got the event %s, want %s", got, want)
		}
	}
	recorders.End()
	one.Event(about, corev1.EventTypeNormal, "Late", "")
	recorders.For("three").Event(about, corev1.EventTypeNormal, "Late", "")
	recorders.End()
	if begun != 1 || len(sink) > 0 {
		t.Errorf("begun %d times, and %d events after the end", begun, len(sink))
	}
}

func TestRecordersThatCannotBeginDropEvents(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	recorders := NewRecorders(scheme.Scheme, log, func() (record.EventSink, error) { return nil, errors.New("no config") })
	one := recorders.For("one")
	for range 3 {
		one.Event(&corev1.ConfigMap{}, corev1.EventTypeNormal, "Lost", "")
	}
	recorders.End()
	if diff := cmp.Diff([]string{`"msg"="Cannot record events" "error"="no config"`}, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
