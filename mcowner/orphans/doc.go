// Package orphans finds dependents whose owner, in whatever cluster, is gone, and removes them: those of which no event has
// told. See package mcowner for what owners and dependents are, and docs/ownership.md for what proves that an owner is gone.
package orphans
