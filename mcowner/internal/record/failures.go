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
	// Begun are the clusters that are being changed although the rollout is halted, as many at most.
	Begun []mcreconcile.ClusterName `json:"begun,omitempty"`
}

// MostFailures is how many clusters are named in which a rollout has failed. The owner needs the room for those in which there may be
// dependents.
const MostFailures = 100

// NewFailures returns what is noted of the clusters in which a rollout has failed, nil if there are none.
func NewFailures(revision string, clusters []mcreconcile.ClusterName, begun ...mcreconcile.ClusterName) *Failures {
	if len(clusters) == 0 {
		return nil
	}
	return &Failures{revision, few(clusters), few(begun)}
}

// failuresIn reads what was noted, nil if it cannot be read: somebody else has written that.
func failuresIn(text string) *Failures {
	f := &Failures{}
	if json.Unmarshal([]byte(text), f) != nil {
		return nil
	}
	isNone := func(name mcreconcile.ClusterName) bool { return !IsName(name) }
	return NewFailures(f.Revision, slices.DeleteFunc(f.Clusters, isNone), slices.DeleteFunc(f.Begun, isNone)...)
}

// few orders names, each once, and returns the first ones.
func few(names []mcreconcile.ClusterName) []mcreconcile.ClusterName {
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), MostFailures)]
}
