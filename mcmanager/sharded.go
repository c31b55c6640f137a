package mcmanager

import (
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// Sharded lets all replicas of the program share the members: each member has one replica that works on it, and goes to another
// when that ends or dies. The zero value of opts works in a pod of a Deployment or StatefulSet. Page docs/sharding.md has the rights
// that it takes.
//
// Controllers that mcbuilder builds then run on every replica. Requests of the local cluster go to one replica too, which need
// not be the leader; a controller that watches the local cluster alone runs on the leader, as ever.
//
// Options that cannot be used are an error of [New].
func Sharded(opts sharding.Options) FleetOption {
	replica, err := sharding.New(opts)
	return func(o *fleet.Options) {
		o.Ownership = replica
		if err != nil {
			o.Ownership = unusable{err: err}
		}
	}
}

// unusable is an Ownership that could not be made.
type unusable struct {
	fleet.Ownership

	err error
}
