// Package access makes the tokens by which clusters are reached that objects of the kind v1alpha1.ClusterAccess describe. The
// tokens last for minutes or hours, live in memory alone, and are renewed in place.
//
// Where a cluster trusts the hub, the hub makes them ([v1alpha1.Federated]). Elsewhere the cluster makes them, on behalf of a
// minter: an account of the cluster that may do nothing but that ([v1alpha1.Minter]).
//
//	token.go       a token, which does not show its value
//	hub.go         asks the hub for one; minter.go asks the cluster, with what is in a minter's Secret
//	source.go      the tokens of one access, one after the other; sources.go those of a process
//	transport.go   puts the token of the moment into requests
//	check.go       asks a cluster whom it takes a token for
//	controller.go  keeps the status of accesses; renewal.go keeps the minters' own tokens from expiring
//
// Package providers/access makes members of the clusters.
package access
