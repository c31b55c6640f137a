package objects

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// Reasons of the events that tell what is wrong with an object. Errors of a provider may bring others.
const (
	// ReasonDuplicateName is for an object that describes a member which an older object describes already.
	ReasonDuplicateName = "DuplicateName"
	// ReasonInvalidMember is for a member that cannot be used, such as one with spaces in its name.
	ReasonInvalidMember = "InvalidMember"
	// ReasonNoMember is for an object that describes no member.
	ReasonNoMember = "NoMember"
	// ReasonNotDescribed is for an object of which it could not be found out what it describes.
	ReasonNotDescribed = "NotDescribed"
)

// maxNote is how long the API allows the text of an event to be, in bytes.
const maxNote = 1024

// aboutObject is the subject of warnings about an object as a whole.
const aboutObject = "object"

// aboutMember returns the subject of warnings about one member that an object describes.
func aboutMember(name fleet.ClusterName) string { return "member " + string(name) }

// description is what one object describes.
type description struct {
	ref     *corev1.ObjectReference
	members map[fleet.ClusterName]fleet.Member
	warned  map[string]string // by subject, the last warning, while it holds
}

// setMembers replaces the members, and returns their names, each once. Of several with one name, the first counts.
func (d *description) setMembers(members []fleet.Member) []fleet.ClusterName {
	names := make([]fleet.ClusterName, 0, len(members))
	before := d.members
	d.members = make(map[fleet.ClusterName]fleet.Member, len(members))
	for _, m := range members {
		if _, ok := d.members[m.Name]; ok {
			continue
		}
		d.members[m.Name] = m
		names = append(names, m.Name)
	}
	for name := range before {
		if _, ok := d.members[name]; !ok {
			d.settle(aboutMember(name))
		}
	}
	return names
}

// settle notes that there is no reason for a warning any more, so that the next one is news again.
func (d *description) settle(subject string) { delete(d.warned, subject) }

// warn puts an event on the object, unless it would only repeat the last one about the subject.
func (w *worker[T]) warn(d *description, subject, reason, message string) {
	if d.warned[subject] == reason+message {
		return
	}
	d.warned[subject] = reason + message
	if len(message) > maxNote {
		message = strings.ToValidUTF8(message[:maxNote-len("…")], "") + "…"
	}
	w.recorder.Eventf(d.ref, nil, corev1.EventTypeWarning, reason, "Discover", "%s", message)
}

// waiting is the error of [Waiting].
type waiting struct{ reason, message string }

func (w waiting) Error() string  { return w.message }
func (w waiting) Reason() string { return w.reason }

// Waiting returns an error for the [fleet.Member.Err] of a member that cannot be described yet, and will be when things
// take their normal course, such as that of a cluster which is being made. The reason shows in the state of the member.
// There is no event.
func Waiting(reason, message string) error { return waiting{reason, message} }

// isWaiting reports whether err comes from [Waiting].
func isWaiting(err error) bool {
	_, ok := errors.AsType[waiting](err)
	return ok
}

// reasonOf returns the reason that err brings along.
func reasonOf(err error, otherwise string) string {
	var with interface{ Reason() string }
	if errors.As(err, &with) {
		return with.Reason()
	}
	return otherwise
}
