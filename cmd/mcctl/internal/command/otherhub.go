package command

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

// ofAnyHub is the mark of the member without its hub.
func (m mark) ofAnyHub() mark {
	all := maps.Clone(m)
	delete(all, hubLabel)
	return all
}

// ofOtherHubs says what a person may run for objects that were made for members of other hubs: once such a hub is no more, no leave takes them.
// It begins with a new line, and is empty where there is none of these.
func (m mark) ofOtherHubs(objects []client.Object) string {
	var commands []string
	for _, obj := range objects {
		if selector := m.otherHub(obj); selector != "" {
			commands = append(commands, membership.ManualCommands(selector)...)
		}
	}
	if len(commands) == 0 {
		return ""
	}
	slices.Sort(commands)
	return "\nSome of what is there was made for another hub. If that hub is no more, run this in the member:\n" + strings.Join(slices.Compact(commands), "\n")
}

// otherHub selects what was made for the same member of the same hub as an object, if that is another hub. No selector is made of what is no
// value of a label: the member says it, and a person is to run it.
func (m mark) otherHub(obj metav1.Object) string {
	is := labels.Set{}
	for key := range m {
		if value, has := obj.GetLabels()[key]; has {
			is[key] = value
		}
	}
	selector, err := labels.ValidatedSelectorFromSet(is)
	if err != nil || is[managedByLabel] != managedBy || is[hubLabel] == "" || is[hubLabel] == m[hubLabel] {
		return ""
	}
	return selector.String()
}
