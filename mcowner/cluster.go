package mcowner

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// ClusterID says of a cluster what it is called, and which one it is. mcmanager.Identities knows it.
type ClusterID struct {
	// Name is its name in the fleet. It is empty for the local cluster.
	Name mcreconcile.ClusterName

	// UID tells it from another cluster that has the name later, or by mistake: what fleet.Engagement.Identity says. It
	// may be empty where references are read.
	UID types.UID

	// ByName allows a reference to be written without a UID. Only the name counts then: if it leads to another cluster one
	// day, by a mistake in a kubeconfig say, what is there is taken for what was here.
	ByName bool
}

// ByName returns the cluster of a name, whichever it is: for reading references where that does not matter, and for writing
// them where names are known to suffice.
func ByName(name mcreconcile.ClusterName) ClusterID { return ClusterID{Name: name, ByName: true} }

// validate returns an error that wraps ErrInvalid for a cluster that must not be written.
func (c ClusterID) validate() error {
	if c.UID == "" && !c.ByName {
		return fmt.Errorf("%w: it is not known which cluster it is that is called %.64q; give its UID, which mcmanager.Identities knows, or set ByName",
			ErrInvalid, string(c.Name))
	}
	return nil
}

// Clusters say where owners or dependents are. The zero value stands for every member of the fleet.
type Clusters struct {
	// Local includes the local cluster. Alone, it stands for nothing else.
	Local bool
	// Members includes the members that it matches. labels.Everything() matches all.
	Members labels.Selector
}

// HasMembers reports whether members may be among them.
func (c Clusters) HasMembers() bool { return !c.Local || c.Members != nil }
