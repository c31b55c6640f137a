package command

import (
	"crypto/sha256"
	"encoding/hex"
	"path"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// managedByLabel is on what mcctl has made, which goes when the member leaves. What was there before has it not.
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "mcctl"
	// memberLabel says for which member it was made, and hubLabel for the fleet of which hub, by its identity.
	memberLabel = "access.fleet-runtime.dev/member"
	hubLabel    = "access.fleet-runtime.dev/hub"
)

// mark is on what mcctl makes for one member of one hub.
type mark labels.Set

func newMark(hub, member string) mark {
	return mark{managedByLabel: managedBy, memberLabel: memberValue(member), hubLabel: hub}
}

// memberValue is what memberLabel says of a member: without the namespace that is in its name where a provider is of all. It is on what mcctl
// only prints, too.
func memberValue(member string) string {
	member = path.Base(member)
	if len(validation.IsValidLabelValue(member)) > 0 { // it is too long
		sum := sha256.Sum256([]byte(member))
		member = hex.EncodeToString(sum[:16])
	}
	return member
}

func (m mark) put(obj metav1.Object) {
	found := labels.Merge(obj.GetLabels(), labels.Set(m))
	obj.SetLabels(found)
}

func (m mark) selector() labels.Selector { return labels.SelectorFromSet(labels.Set(m)) }

// printed selects what others have applied of what mcctl prints for a member of that name, whatever its hub.
func (m mark) printed() string {
	return memberLabel + "=" + m[memberLabel] + "," + managedByLabel + "!=" + managedBy
}

// isOn reports whether an object was made for the member.
func (m mark) isOn(obj metav1.Object) bool { return m.selector().Matches(labels.Set(obj.GetLabels())) }

// forOther reports whether an object was made for another member, or for one of another hub.
func (m mark) forOther(obj metav1.Object) bool {
	return obj.GetLabels()[managedByLabel] == managedBy && obj.GetLabels()[memberLabel] != "" && !m.isOn(obj)
}
