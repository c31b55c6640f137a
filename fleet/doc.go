// Package fleet holds the clusters that a manager works on: what a provider reports, connected, watched over and ended.
//
// A provider describes members, by [Members.Set] and [Members.Remove]. The [Fleet] owns the rest of a member's life, in
// a goroutine each, so that none waits for another:
//
//	provider.go    what a provider is, and what it reports
//	fleet.go       the set of members
//	member.go      the states of one member, and what leads from one to the next
//	attempt.go     how a member is connected, or gets new credentials while it is in use (rotation.go)
//	connect.go     what is asked of it first; cluster.go its client, cache and informers
//	wire.go        how all its requests travel, by one generation.go of credentials after the other; send.go one of them
//	identity.go    which cluster it is
//	engagement.go  one connection, the work that joins it, and its drain
//	handover.go    how one engagement takes the place of another
//	health.go      when a member counts as unreachable, and probes.go when it is asked
//	kinds.go       what becomes of kinds that cannot be listed, each by kind.go
//	metrics.go     what is counted, and controller.go what controllers say of their queues
//	changes.go     how controllers learn of all that
//	ownership.go   what decides which replica works on a member; share.go what follows from it for the member
//	guest.go       clients of members that need not be engaged, or are not owned
//
// Sources attach to engagements ([Fleet.Changes]); reconcilers run on them ([Fleet.Engagement]). Both join them
// ([Engagement.Join]).
package fleet
