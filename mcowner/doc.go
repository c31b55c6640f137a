// Package mcowner carries owner references across clusters: it says of an object, the dependent, to which object it
// belongs, its owner, which may be in another cluster.
//
// A [Reference] is written into the dependent's own metadata, so it needs no CRD, and no rights beyond those on the
// dependent:
//
//   - an annotation for each owner has the [Reference] as JSON;
//   - a label of the same key lets the dependents of one owner be listed, see [Reference.Key];
//   - the label [FleetLabel] lets all dependents of an installation be listed.
//
// What is done with references is elsewhere: mcbuilder's AcrossClusters turns events on dependents into requests for
// owners. In the folders below, package dependents creates, changes and removes dependents, and package orphans removes
// those whose owner is gone.
package mcowner
