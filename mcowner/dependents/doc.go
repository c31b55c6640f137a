// Package dependents contains what works on owners whose dependents are in other clusters: a [Reconciler] that creates, changes
// and removes dependents. It has an orphans.Collector for those whose owner is gone.
//
// # How it works
//
// The [Reconciler] is given functions: in which clusters an owner has dependents, and which. The rest is its part: a
// finalizer on the owner before the first dependent exists, server-side apply, removal of what is no longer wanted,
// deletion as the owner's deletion asks, events and status on the owner.
//
// Each cluster of an owner is worked on by itself, so that one that is slow does not hold up the others. What came of each
// dependent is a [Result]. What is done where there is a choice is a [Policy].
//
// In annotations on the owner it keeps the clusters in which there may be dependents, and of which kinds. A cluster is written
// there before the first dependent is created in it. So a dependent is found again whatever happens in between: the program
// is killed, the placement changes while it does not run, the member is away.
//
// # What is never done
//
// An object without a reference of package mcowner that says it belongs to this very owner is never changed or deleted, unless a
// [ConflictPolicy] allows to take it over. A cluster that cannot be asked is never taken for empty, and an owner in it never
// for gone. See docs/ownership.md.
package dependents

// Where things are, for those who work on them:
//
//   - what users give: reconciler.go, policy.go, rollout.go, and setup.go, which makes an engine of it
//   - an owner: controller.go reads it and plans; plan.go, ownerstate.go, part.go and ownersites.go are what is known of it; ledger.go has all owners
//   - work in a cluster: work.go is what is queued; place.go begins and concludes it; visit.go and glean.go do it in members of other replicas
//   - what is there: kindshere.go, presence.go and absences.go say of which kinds, found.go lists it, snapshot.go without a cache
//   - what is to be there: wanted.go and configuration.go; apply.go goes through it by wave.go, and object.go writes one object
//   - what is not: remove.go; deletion.go says how an owner was deleted, tombs.go that what it had is to stay
//   - whose it is: mayown.go; namespace.go shares namespaces; contention.go is about others that change it back
//   - what the owner is told: account.go, with ownerrecord.go, ownerstatus.go, events.go, result.go and summary.go; slices.go where there is much
//   - what brings work: members.go, watch.go, unwatch.go, visitwatch.go and slicewatch.go; seek.go and hold.go as clusters leave
