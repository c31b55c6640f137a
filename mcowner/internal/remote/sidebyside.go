package remote

import (
	"golang.org/x/sync/errgroup"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// AtOnce is how many clusters are worked on side by side.
const AtOnce = 16

// SideBySide calls do for several clusters, so that none holds up the others, and returns when all is done.
func SideBySide(names []mcreconcile.ClusterName, do func(i int, name mcreconcile.ClusterName)) {
	var group errgroup.Group
	group.SetLimit(AtOnce)
	for i, name := range names {
		group.Go(func() error {
			do(i, name)
			return nil
		})
	}
	_ = group.Wait() // it has no errors
}
