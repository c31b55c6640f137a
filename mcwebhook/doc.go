// Package mcwebhook serves the admission webhooks of all members of a fleet. A webhook is written once, as for one cluster, and
// mcreconcile.ClusterFrom finds in its context the member whose API server asks.
//
// [New] returns a manager for the registration of webhooks, and everything else of that is as before:
//
//	hooks, err := mcwebhook.New(mgr, mcwebhook.Options{...})
//	err = ctrl.NewWebhookManagedBy(hooks, &appsv1.Deployment{}).WithValidator(&validator{}).Complete()
//
// How it is made:
//
//	manager.go        what users see; registry.go takes what they register
//	configuration.go  the webhooks as members get them
//	installer.go      puts them into the members, a controller like any other; claim.go says on each which program keeps it
//	listener.go       is the socket
//	server.go         answers the API servers of members; caller.go tells which member it is that asks
//	material.go       keys and certificates; store.go has them from a Secret, and keeper.go renews them
package mcwebhook
