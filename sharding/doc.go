// Package sharding shares the members of a fleet among the replicas of a manager: each member has one replica that works on it.
// All that the replicas need is Leases in the cluster that the manager runs against.
//
// # Setup
//
// A [Replica] is the [fleet.Ownership] of a fleet:
//
//	replica, err := sharding.New(sharding.Options{})
//
// In a pod of a Deployment or of a StatefulSet, [Options] need nothing. The service account needs these rights in the
// namespace of the pod: get, list, watch, create, update and delete on leases of coordination.k8s.io. With create and patch on
// events, what happens is told as events on the table as well.
//
// # How it works
//
// Members are in buckets, by a hash of their key. A Lease, the table, says which session owns each bucket. A session is
// one start of a replica, and has a Lease of its own that it renews. The replica that joined first plans: who joins,
// leaves or dies makes it move buckets. Only the owner of a bucket gives it up, after everything that ran for its members has
// ended. If the owner's Lease was not renewed for [Options.LeaseDuration], another replica takes the Lease from
// it first. Long before, the owner has stopped by itself: a [fleet.Tenure] has no time left when its session was not
// renewed for 8/15 of that duration, by a clock that stands still or by one that is set anew.
//
// # Trade-offs
//
// What the replicas write to the API server does not depend on how many members there are: each renews its Lease every
// three seconds, and a move of many members is a few writes. A member whose weight is more than the fair share of a replica
// makes that replica's load larger than the others': members are not split.
package sharding
