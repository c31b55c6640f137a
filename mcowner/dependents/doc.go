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
