package sharding

import (
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/eventlog"
)

// events are told on the table.
type events struct {
	recorders *eventlog.Recorders
	recorder  record.EventRecorder
}

func newEvents(local cluster.Cluster, opts Options, log logr.Logger) *events {
	recorders := eventlog.NewRecorders(scheme.Scheme, eventlog.Quiet(log, fleet.ReasonOf), func() (record.EventSink, error) {
		client, err := typedcorev1.NewForConfigAndClient(local.GetConfig(), local.GetHTTPClient())
		if err != nil {
			return nil, err
		}
		return &typedcorev1.EventSinkImpl{Interface: client.Events(opts.Namespace)}, nil
	})
	return &events{recorders: recorders, recorder: recorders.For("sharding")}
}

func (e *events) end() { e.recorders.End() }

func (e *events) joined(table *coordinationv1.Lease, session string) {
	e.recorder.Eventf(table, corev1.EventTypeNormal, "ReplicaJoined", "%s shares the members now", session)
}

func (e *events) fenced(table *coordinationv1.Lease, session string, silent time.Duration) {
	e.recorder.Eventf(table, corev1.EventTypeWarning, "ReplicaFenced", "%s was silent for %s; others take over what it owned",
		session, silent.Round(time.Millisecond))
}

func (e *events) ofAnotherFleet(table *coordinationv1.Lease, session, than, why string) {
	e.recorder.Eventf(table, corev1.EventTypeWarning, "AnotherFleet",
		"%s seems to be of another fleet than %s: %s; give each fleet an ID of its own", session, than, why)
}

func (e *events) late(table *coordinationv1.Lease, session string, buckets int, after time.Duration) {
	e.recorder.Eventf(table, corev1.EventTypeWarning, "HandOverTooLong",
		"%s has not given up %d buckets within %s and keeps them: something that runs for a member there does not end", session, buckets, after)
}
