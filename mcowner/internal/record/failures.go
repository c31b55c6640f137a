package record

import (
	"encoding/json"
	"slices"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Failures says in which clusters a rollout has failed.
type Failures struct {
	// Revision is what is rolled out. Of anything else, this says nothing.
	Revision string `json:"revision"`
	// Clusters are ordered, and at most [MostFailures]: others are known once they have failed again.
	Clusters []mcreconcile.ClusterName `json:"clusters"`
}

// MostFailures is how many clusters are named in which a rollout has failed. The owner needs the room for those in which there may be
// dependents.
const MostFailures = 100

// NewFailures returns what is noted of the clusters in which a rollout has failed, nil if there are none.
func NewFailures(revision string, clusters []mcreconcile.ClusterName) *Failures {
	if len(clusters) == 0 {
		return nil
	}
	slices.Sort(clusters)
	return &Failures{revision, clusters[:min(len(clusters), MostFailures)]}
}

// failuresIn reads what was noted, nil if it cannot be read: somebody else has written that.
func failuresIn(text string) *Failures {
	f := &Failures{}
	if json.Unmarshal([]byte(text), f) != nil {
		return nil
	}
	clusters := slices.DeleteFunc(f.Clusters, func(name mcreconcile.ClusterName) bool { return !IsName(name) })
	slices.Sort(clusters)
	return NewFailures(f.Revision, slices.Compact(clusters))
}
