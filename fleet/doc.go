// Package fleet holds the clusters that a manager works on: what a provider reports, connected, watched over and ended.
//
// A provider describes members, by [Members.Set] and [Members.Remove]. The [Fleet] owns the rest of a member's life, in
// a goroutine each, so that none waits for another:
//
//	provider.go    what a provider is, and what it reports
//	fleet.go       the set of members
//	member.go      the states of one member, and what leads from one to the next
//	connect.go     how a member is connected: HTTP client, probe, cache, field indexes
//	rotation.go    how it gets new credentials while it is in use, and transport.go what they travel on
//	engagement.go  one connection, the work that runs for it, and its drain
//	health.go      when a member counts as unreachable
//	listwatch.go   how its informers retry, and kinds.go, cache.go what becomes of kinds that cannot be listed
//	metrics.go     what is counted, and queues.go what controllers say of their queues
//	changes.go     how controllers learn of all that
//
// Sources attach to engagements ([Fleet.Changes]); reconcilers run on them ([Fleet.Engagement]). Both join them
// ([Engagement.Join]).
package fleet
