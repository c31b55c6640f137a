package dependents

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Reasons of the events that a [Reconciler] records on an owner, in the owner's cluster. What goes on is told once.
const (
	EventCreated         = "Created"         // a dependent was created
	EventUpdated         = "Updated"         // a dependent was changed, or changed back
	EventDeleted         = "Deleted"         // a dependent was deleted
	EventOrphaned        = "Orphaned"        // a dependent was left, without the reference
	EventConflict        = "Conflict"        // an object that is somebody else's has the place of a dependent
	EventClusterNotReady = "ClusterNotReady" // a cluster cannot be used now
	EventForbidden       = "Forbidden"       // a right is missing
	EventFailed          = "Failed"          // an API server has refused for another reason
	EventReleased        = "Released"        // the deletion no longer waits for a cluster that is not in the fleet
	EventReplaced        = "ClusterReplaced" // the name of a cluster with dependents leads to another one now
)

// maxNote is the longest note that the API server takes, in bytes.
// https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/core/validation/events.go
const maxNote = 1024

// did tells of a dependent with which something was done.
func (p *pass) did(reason string, at mcreconcile.ClusterName, dependent string) {
	action := map[string]string{
		EventCreated: "Apply", EventUpdated: "Apply", EventDeleted: "Delete", EventOrphaned: "Release",
	}[reason]
	p.emit(corev1.EventTypeNormal, reason, action, about(at, dependent), fmt.Sprintf("%s %s in %s", reason, dependent, clusterText(at)))
}

// tell tells what keeps a cluster from being as desired, unless that was told last. A nil error says that nothing does.
func (p *pass) tell(at mcreconcile.ClusterName, err error) {
	if err == nil {
		p.memory.isNews(string(at), "")
		return
	}
	reason, subject := reasonOf(err), subjectOf(err)
	news := reason + subject
	if reason != EventClusterNotReady { // whose message changes all the time
		news += err.Error()
	}
	if reason == "" || !p.memory.isNews(string(at), news) {
		return
	}
	p.emit(corev1.EventTypeWarning, reason, "Apply", about(at, subject), err.Error())
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

func (p *pass) emit(kind, reason, action string, about *corev1.ObjectReference, note string) {
	p.home.GetEventRecorder(p.name).Eventf(p.owner, about, kind, reason, action, "%s", oneline.Text(note, maxNote))
}

// about is the secondary object of an event: a cluster, and what in it. Events that differ in their notes alone would be taken
// for the same one.
func about(at mcreconcile.ClusterName, subject string) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Cluster", Name: string(at), FieldPath: subject}
}

func clusterText(name mcreconcile.ClusterName) string {
	if name == mcreconcile.LocalCluster {
		return "the local cluster"
	}
	return fmt.Sprintf("cluster %q", name)
}
