package dependents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Reasons of the events that a [Reconciler] records on an owner, in the owner's cluster. What goes on is told once.
const (
	EventCreated         = "Created"              // a dependent was created
	EventUpdated         = "Updated"              // a dependent was changed, or changed back
	EventDeleted         = "Deleted"              // a dependent was deleted
	EventOrphaned        = "Orphaned"             // a dependent was left, without the reference
	EventConflict        = "Conflict"             // an object that is somebody else's has the place of a dependent
	EventContended       = "Contended"            // a dependent, or the owner, is changed by others whenever it is written or removed
	EventClusterNotReady = "ClusterNotReady"      // a cluster cannot be used now
	EventForbidden       = "Forbidden"            // a right is missing
	EventFailed          = "Failed"               // an API server has refused for another reason
	EventReleased        = "Released"             // the deletion no longer waits for a cluster that is not in the fleet
	EventReplaced        = "ClusterReplaced"      // the name of a cluster with dependents leads to another one now
	EventTerminating     = "NamespaceTerminating" // a dependent waits for a namespace that is being deleted
	EventInvalidPolicy   = "InvalidPolicy"        // an annotation does not say what becomes of the owner's dependents
)

// maxNote is the longest note that the API server takes, in bytes.
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/validation/events.go
const maxNote = 1024

// ownerEvent is one that is recorded when the owner's account is kept.
type ownerEvent struct {
	kind, reason, action, note string
	about                      corev1.ObjectReference
}

// What was done, or tried, as events say it.
const (
	actionApply  = "Apply"
	actionDelete = "Delete"
)

// mostEvents is how many wait to be recorded. More say nothing more.
const mostEvents = 10_000

func (o *ownerState) emit(e ownerEvent) {
	e.note = oneline.Text(e.note, maxNote)
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.events) < mostEvents {
		o.events = append(o.events, e)
	}
}

// did tells of a dependent with which something was done.
func (o *ownerState) did(reason string, at mcreconcile.ClusterName, dependent string) {
	action := map[string]string{
		EventCreated: actionApply, EventUpdated: actionApply, EventDeleted: actionDelete, EventOrphaned: "Release",
	}[reason]
	o.emit(ownerEvent{
		corev1.EventTypeNormal, reason, action, fmt.Sprintf("%s %s in %s", reason, dependent, remote.ClusterText(at)), about(at, dependent),
	})
}

// topic is what an event is about: what is said of it goes on until something else is. Those of clusters name one.
type topic struct {
	of topicOf
	in mcreconcile.ClusterName
}

type topicOf int8

const (
	topicCluster topicOf = iota
	topicReplaced
	topicUnnoted
	topicPolicy
	topicRecord
	topicStatus
	topicPlan
)

// stopTelling forgets what was said of clusters that concern the owner no more. It is news if they do again.
func (o *ownerState) stopTelling(results []Result) {
	concerns := make(map[mcreconcile.ClusterName]bool, len(results))
	for _, r := range results {
		concerns[r.Cluster] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.told, func(t topic, _ hash) bool { return t.of <= topicReplaced && !concerns[t.in] })
}

// tellAll tells what keeps clusters from being as desired, and records all events.
func (a *accounting) tellAll(results []Result) {
	for _, r := range results {
		a.o.tell(r.Cluster, r.Err)
	}
	a.engine.recordEvents(a.o, a.home, a.plan.owner)
}

// recordEvents records the events that wait.
func (c *engine) recordEvents(o *ownerState, home remote.Session, owner client.Object) {
	o.mu.Lock()
	events := o.events
	o.events = nil
	o.mu.Unlock()
	recorder := home.Cluster.GetEventRecorder(c.cfg.name)
	for _, e := range gathered(events) {
		recorder.Eventf(owner, &e.about, e.kind, e.reason, e.action, "%s", oneline.Text(e.note, maxNote))
	}
}

// fewEvents is how many of a reason are told of one by one.
const fewEvents = 20

// gathered returns the events, with few in place of many of one reason: an owner may have thousands of dependents, in as many clusters,
// and its cluster keeps every event for an hour.
func gathered(events []ownerEvent) []ownerEvent {
	alike := map[string][]ownerEvent{}
	var reasons []string
	for _, e := range events {
		if alike[e.reason] == nil {
			reasons = append(reasons, e.reason)
		}
		alike[e.reason] = append(alike[e.reason], e)
	}
	var few []ownerEvent
	for _, reason := range reasons {
		switch all := alike[reason]; {
		case len(all) <= fewEvents:
			few = append(few, all...)
		case all[0].kind == corev1.EventTypeNormal:
			few = append(few, counted(all))
		default:
			few = append(few, eachText(all)...)
		}
	}
	return few
}

// counted returns one event that says with how many dependents the same was done.
func counted(all []ownerEvent) ownerEvent {
	clusters := map[string]bool{}
	for _, e := range all {
		clusters[e.about.Name] = true
	}
	one := all[0]
	one.note = fmt.Sprintf("%s %d dependents in %d clusters", one.reason, len(all), len(clusters))
	one.about = about("", "")
	return one
}

// eachText returns warnings of one reason that say each text once, about the first cluster that has it, and in how many that is so.
// Where there are many texts, one more event counts the others.
func eachText(all []ownerEvent) []ownerEvent {
	texts := map[string]int{} // where it is among the few
	var few []ownerEvent
	var count []int
	others := 0
	for _, e := range all {
		said := steady(e.note)
		if e.about.Name != "" {
			said = strings.ReplaceAll(said, strconv.Quote(e.about.Name), "")
		}
		at, is := texts[said]
		switch {
		case is:
			count[at]++
		case len(few) < fewEvents:
			texts[said] = len(few)
			few, count = append(few, e), append(count, 1)
		default:
			others++
		}
	}
	for i, n := range count {
		if n > 1 {
			few[i].note = fmt.Sprintf("In %d clusters: %s", n, few[i].note)
		}
	}
	if others > 0 {
		rest := few[0]
		rest.note, rest.about = fmt.Sprintf("%s in %d clusters more, with other texts", rest.reason, others), about("", "")
		few = append(few, rest)
	}
	return few
}

// tell tells what keeps a cluster from being as desired, unless that was told last. A nil error says that nothing does.
func (o *ownerState) tell(at mcreconcile.ClusterName, err error) {
	if err == nil {
		o.isNews(topic{topicCluster, at}, "")
		return
	}
	reason, subject := reasonOf(err), subjectOf(err)
	news := reason + subject
	if reason != EventClusterNotReady { // whose message changes all the time
		news += text(err)
	}
	if reason == "" || !o.isNews(topic{topicCluster, at}, news) {
		return
	}
	o.emit(ownerEvent{corev1.EventTypeWarning, reason, actionApply, err.Error(), about(at, subject)})
}

// reasonOf returns the reason of the event that tells of an error, empty if it is no news to a user.
func reasonOf(err error) string {
	_, replaced := errors.AsType[*ReplacedError](err)
	switch {
	case errors.Is(err, errContended):
		return EventContended
	case isTerminating(err):
		return EventTerminating
	case isUnderway(err), errors.Is(err, ErrLeaving), errors.Is(err, errPolicy), isFirstAttempt(err): // what is unclear is told once for all clusters
		return ""
	case isConflict(err):
		return EventConflict
	case replaced:
		return EventReplaced
	case remote.IsAway(err):
		return EventClusterNotReady
	case apierrors.IsForbidden(err):
		return EventForbidden
	default:
		return EventFailed
	}
}

// isFirstAttempt reports whether an error says that a member is being connected, and no attempt has failed yet. At each start of
// the program, all members are.
func isFirstAttempt(err error) bool {
	state, ok := errors.AsType[*fleet.StateError](err)
	return ok && state.Status.State == fleet.Connecting && state.Status.Reason == ""
}

// subjectOf returns what an error is about in a cluster: an object, or the state of the cluster.
func subjectOf(err error) string {
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		return conflict.Object
	}
	state, ok := errors.AsType[*fleet.StateError](err)
	switch {
	case ok && state.Status.State != "":
		return string(state.Status.State)
	case ok:
		return state.Err.Error()
	default:
		return ""
	}
}

// tellReleased tells that a cluster holds up nothing any more.
func (a *accounting) tellReleased(s record.Site, why error) { a.o.tellReleased(s, why) }

func (o *ownerState) tellReleased(s record.Site, why error) {
	o.emit(ownerEvent{corev1.EventTypeWarning, EventReleased, actionDelete, fmt.Sprintf(
		"The owner no longer waits for %s; dependents there are left: %v", remote.ClusterText(s.Name), why), about(s.Name, string(s.Identity))})
}

// tellUnnoted tells why an owner that is deleted waits until it is noted that its dependents are to stay.
func (o *ownerState) tellUnnoted(err error) {
	if err == nil || isOutdated(err) || !o.isNews(topic{of: topicUnnoted}, text(err)) {
		return
	}
	o.emit(ownerEvent{corev1.EventTypeWarning, reasonOf(err), "Delete", err.Error(), about(mcreconcile.LocalCluster, "ConfigMap")})
}

// tellUnclear tells why it is not known what becomes of the dependents when the owner goes, and forgets it once it is known.
func (o *ownerState) tellUnclear(err error) {
	if o.isNews(topic{of: topicPolicy}, text(err)) && err != nil {
		o.emit(ownerEvent{corev1.EventTypeWarning, EventInvalidPolicy, actionDelete, err.Error(), about(o.req.ClusterName, DeletionPolicyAnnotation)})
	}
}

// tellRecord tells why it cannot be read, or stored, where there are dependents. Until it can, nothing is done for the owner.
func (o *ownerState) tellRecord(err error) { o.tellUntil(topicRecord, "Note", "record", err) }

// tellPlan tells why it is not known what the owner asks for. What it asked for before goes on.
func (o *ownerState) tellPlan(err error) { o.tellUntil(topicPlan, "Plan", "plan", err) }

// tellUntil tells of an error about something once, until it is another one, or there is none.
func (o *ownerState) tellUntil(of topicOf, action, subject string, err error) {
	if err != nil && (reasonOf(err) == "" || errors.Is(err, record.ErrOutdated) || errors.Is(err, context.Canceled)) {
		return // it is tried again at once, or not by this process
	}
	if o.isNews(topic{of: of}, text(err)) && err != nil {
		o.emit(ownerEvent{corev1.EventTypeWarning, reasonOf(err), action, err.Error(), about(o.req.ClusterName, subject)})
	}
}

// tellStatus tells why the status cannot be written.
func (o *ownerState) tellStatus(err error) { o.tellUntil(topicStatus, "Report", "status", err) }

// tellReplaced tells of clusters that had the name of a target before. That is no fault of the target, and becomes one when
// the owner is deleted.
func (o *ownerState) tellReplaced(at mcreconcile.ClusterName, now types.UID, err error) {
	if o.isNews(topic{topicReplaced, at}, text(err)) && err != nil {
		o.emit(ownerEvent{corev1.EventTypeWarning, EventReplaced, actionApply, err.Error(), about(at, string(now))})
	}
}

// about is the secondary object of an event: a cluster, and what in it. Events that differ in their notes alone would be taken
// for the same one.
func about(at mcreconcile.ClusterName, subject string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Cluster", Name: string(at), FieldPath: subject}
}
