package objects

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

// Reasons of the events and problems that tell what is wrong with an object. Errors of a provider may bring others.
const (
	// ReasonDuplicateName is for an object that describes a member which an older object describes already.
	ReasonDuplicateName = "DuplicateName"
	// ReasonInvalidMember is for a member that cannot be used, such as one with spaces in its name.
	ReasonInvalidMember = "InvalidMember"
	// ReasonNoMember is for an object that describes no member.
	ReasonNoMember = "NoMember"
	// ReasonNotDescribed is for an object of which it could not be found out what it describes.
	ReasonNotDescribed = "NotDescribed"
	// ReasonNotReported is for a member that the fleet did not take, for now.
	ReasonNotReported = "NotReported"
	// ReasonTooManyMembers is for an object that describes more members than one may.
	ReasonTooManyMembers = "TooManyMembers"
	// ReasonTooSlow is for an object of which it takes too long to find out what it describes.
	ReasonTooSlow = "TooSlow"
)

const (
	// maxNote is how long the API allows the text of an event to be, in bytes.
	maxNote = 1024
	// firstEvents is how many events an object gets at once, and eventsPerSecond how many more.
	firstEvents, eventsPerSecond = 20, 1.0 / 30
)

// description is what one object describes. The worker's lock guards it.
type description struct {
	key     client.ObjectKey
	uid     types.UID
	version string                         // of the object, when it was looked at last
	members []described                    // ordered by name; nil before the first are known
	told    map[fleet.ClusterName]told     // by member what was told last, while it holds; "" for the object as a whole
	events  flowcontrol.PassiveRateLimiter // nil before the first

	departure departure
}

// described is a member as it is kept: there are many, and a map of labels would be the largest part of most.
type described struct {
	fleet.Member // without labels

	labels []string // each with its value behind it
}

func newDescribed(m fleet.Member) described {
	d := described{Member: m, labels: make([]string, 0, 2*len(m.Labels))}
	for name, value := range m.Labels {
		d.labels = append(d.labels, name, value)
	}
	d.Labels = nil
	return d
}

func (d described) member() fleet.Member {
	m := d.Member
	m.Labels = make(map[string]string, len(d.labels)/2)
	for label := range slices.Chunk(d.labels, 2) {
		m.Labels[label[0]] = label[1]
	}
	return m
}

// find returns where the member of a name is.
func (d *description) find(name fleet.ClusterName) (at int, ok bool) {
	return slices.BinarySearchFunc(d.members, name, func(m described, name fleet.ClusterName) int { return cmp.Compare(m.Name, name) })
}

// names returns those of the members, in order.
func (d *description) names() []fleet.ClusterName {
	names := make([]fleet.ClusterName, len(d.members))
	for i := range d.members {
		names[i] = d.members[i].Name
	}
	return names
}

// told is what the object's owner is told by an event.
type told struct {
	reason, message string
	noMember        bool // no member shows it, so it is a problem too
}

// about names an object in texts.
func (w *worker[T]) about(key client.ObjectKey) string {
	return w.kind + " " + strings.TrimPrefix(key.String(), "/")
}

// descriptionLocked returns what was known of the object until now, to be changed.
func (w *worker[T]) descriptionLocked(key client.ObjectKey, obj T) *description {
	d := w.described[key]
	if d == nil {
		d = &description{key: key}
		w.described[key] = d
	}
	if d.uid != "" && d.uid != obj.GetUID() { // what holds is news for the owner of the new object
		for subject, t := range d.told {
			d.told[subject] = told{noMember: t.noMember}
		}
		d.departure = departure{}
	}
	d.departure.note(obj)
	d.uid, d.version = obj.GetUID(), obj.GetResourceVersion()
	return d
}

// setMembersLocked replaces the members. It returns the names that count, each once, in their order, and how many are left
// out because there are too many. Of several members with one name, the first counts.
func (w *worker[T]) setMembersLocked(d *description, members []fleet.Member) (names []fleet.ClusterName, excess int) {
	all := make(map[fleet.ClusterName]fleet.Member, len(members))
	for _, m := range members {
		if _, ok := all[m.Name]; !ok {
			all[m.Name] = m
		}
	}
	names = slices.Sorted(maps.Keys(all))
	if most := w.provider.MaxMembers; most > 0 && len(names) > most {
		names, excess = names[:most:most], len(names)-most
	}
	before := d.names()
	d.members = make([]described, len(names))
	for i, name := range names {
		d.members[i] = newDescribed(w.loading(d.key, inNamespace(all[name], d.key.Namespace)))
	}
	for _, name := range before {
		if _, ok := d.find(name); !ok {
			w.settleLocked(d, name)
		}
	}
	return names, excess
}

// inNamespace returns the member with the label of the object's namespace, and without it for an object that has none.
func inNamespace(m fleet.Member, namespace string) fleet.Member {
	if _, ok := m.Labels[NamespaceLabel]; !ok && namespace == "" {
		return m
	}
	m.Labels = maps.Clone(m.Labels)
	if namespace == "" {
		delete(m.Labels, NamespaceLabel)
		return m
	}
	if m.Labels == nil {
		m.Labels = map[string]string{}
	}
	m.Labels[NamespaceLabel] = namespace
	return m
}

// tellLocked puts an event on the object, and reports a problem if no member shows it. It returns false and does nothing
// if that is what was told last about the subject: a member's name, or "".
func (w *worker[T]) tellLocked(d *description, subject fleet.ClusterName, t told) (news bool) {
	t.message = oneline.Text(t.message, maxNote)
	if d.told[subject] == t {
		return false
	}
	if d.told[subject].noMember && !t.noMember {
		w.troubles.end(w.about(d.key), subject)
	}
	if d.told == nil {
		d.told, d.events = map[fleet.ClusterName]told{}, flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, firstEvents)
	}
	d.told[subject] = t
	if t.noMember {
		w.troubles.begin(w.about(d.key), subject, t.reason, t.message)
	}
	if d.events.TryAccept() {
		w.recorder.Eventf(w.reference(d), nil, corev1.EventTypeWarning, t.reason, action(t.message), "%s", t.message)
	}
	return true
}

// reference is what an event is about.
func (w *worker[T]) reference(d *description) *corev1.ObjectReference {
	version, kind := w.gvk.ToAPIVersionAndKind()
	return &corev1.ObjectReference{
		APIVersion: version, Kind: kind, Namespace: d.key.Namespace, Name: d.key.Name, UID: d.uid, ResourceVersion: d.version,
	}
}

// action returns the action of an event with the text. client-go takes events for the same that differ in their texts
// alone, and keeps the first text. So their actions differ too.
func action(message string) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(message)) // it never fails
	return fmt.Sprintf("Discover-%08x", hash.Sum32())
}

// settleLocked notes that nothing is wrong with the subject any more, so that the next trouble is news again.
func (w *worker[T]) settleLocked(d *description, subject fleet.ClusterName) {
	if d.told[subject].noMember {
		w.troubles.end(w.about(d.key), subject)
	}
	delete(d.told, subject)
}

func (w *worker[T]) settleAllLocked(d *description) {
	for subject := range d.told {
		w.settleLocked(d, subject)
	}
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
		return cmp.Or(with.Reason(), otherwise)
	}
	return otherwise
}
