// Package dependents contains what works on owners whose dependents are in other clusters: a [Reconciler] that creates, changes
// and removes dependents, and a [Collector] that finds those whose owner is gone.
//
// # How it works
//
// The [Reconciler] is given functions: in which clusters an owner has dependents, and which. The rest is its part: a
// finalizer on the owner before the first dependent exists, server-side apply, removal of what is no longer wanted,
// deletion as the owner's deletion asks, events and status on the owner.
//
// In an annotation on the owner it keeps the clusters in which there may be dependents, and writes a cluster there before
// it creates the first one in it. So a dependent is found again whatever happens in between: the program is killed, the
// placement changes while it does not run, the member is away.
//
// # What is never done
//
// An object without a reference of package mcowner that says it belongs to this very owner is never changed or deleted.
// A cluster that cannot be asked is never taken for empty, and an owner in it never for gone. See docs/ownership.md.
package dependents
