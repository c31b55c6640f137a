package command

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// managedByLabel is on what mcctl has made, which goes when the member leaves. What was there before has it not.
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "mcctl"
	// memberLabel and namespaceLabel say for which member it was made: they have the name and the namespace of its ClusterAccess.
	memberLabel    = "access.fleet-runtime.dev/member"
	namespaceLabel = "access.fleet-runtime.dev/namespace"
	// hubLabel says in which hub that is, by the identity of the cluster.
	hubLabel = "access.fleet-runtime.dev/hub"
)

// mark is on what mcctl makes for one member of one hub.
type mark labels.Set

func newMark(hub string, member client.ObjectKey) mark {
	return mark(labels.Merge(labels.Set{managedByLabel: managedBy, hubLabel: hub}, memberLabels(member)))
}

// memberLabels say which member of a hub something is for. They are on what mcctl only prints, too.
func memberLabels(member client.ObjectKey) labels.Set {
	return labels.Set{namespaceLabel: labelValue(member.Namespace), memberLabel: labelValue(member.Name)}
}

// labelValue is a text, or its hash where no label may have it: it is too long, or no name of an object.
func labelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// markedAs returns by which name and namespace a member is marked: those of its ClusterAccess. One that can have none has its whole name.
func markedAs(namespace, member string) client.ObjectKey {
	if key, mayBe := accessOf(namespace, member); mayBe {
		return key
	}
	return client.ObjectKey{Namespace: namespace, Name: member}
}

func (m mark) put(obj metav1.Object) {
	found := labels.Merge(obj.GetLabels(), labels.Set(m))
	obj.SetLabels(found)
}

func (m mark) selector() labels.Selector { return labels.SelectorFromSet(labels.Set(m)) }

// printed selects what others have applied of what mcctl prints for a member of that name, whatever its hub.
func (m mark) printed() string {
	return labels.Set{namespaceLabel: m[namespaceLabel], memberLabel: m[memberLabel]}.String() + "," + managedByLabel + "!=" + managedBy
}

// printedOn reports whether others have applied an object of what mcctl prints for a member of that name, whatever its hub.
func (m mark) printedOn(obj metav1.Object) bool {
	of := obj.GetLabels()
	return of[managedByLabel] != managedBy && of[namespaceLabel] == m[namespaceLabel] && of[memberLabel] == m[memberLabel]
}

// isOn reports whether an object was made for the member.
func (m mark) isOn(obj metav1.Object) bool { return m.selector().Matches(labels.Set(obj.GetLabels())) }

// forOther reports whether an object was made for another member, or for one of another hub or another namespace there.
func (m mark) forOther(obj metav1.Object) bool {
	return obj.GetLabels()[managedByLabel] == managedBy && obj.GetLabels()[memberLabel] != "" && !m.isOn(obj)
}
