package main

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	tokens "github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/members"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
)

// newManagerOfAccesses returns a manager whose members are the clusters that ClusterAccesses of the namespace describe. It keeps the
// status of those, and shows the members as Members.
func newManagerOfAccesses(
	hub *rest.Config, namespace string, options mcmanager.Options, opts ...mcmanager.FleetOption,
) (mcmanager.Manager, error) {
	if namespace == "" {
		return nil, errors.New("--accesses takes the --namespace of the ClusterAccesses: rights are given for one")
	}
	options.Scheme = runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(options.Scheme), v1alpha1.AddToScheme(options.Scheme)); err != nil {
		return nil, err
	}
	// One replica keeps the status of the ClusterAccesses, however many share the members.
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionNamespace = true, "operator", namespace
	options.LeaderElectionReleaseOnCancel = true // nothing runs after the manager
	options.Cache.ByObject[&v1alpha1.ClusterAccess{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {}}}
	mgr, err := mcmanager.New(hub, &access.Provider{Namespace: namespace}, options, opts...)
	if err != nil {
		return nil, err
	}
	return mgr, errors.Join(
		tokens.Controller{}.SetupWithManager(mgr),
		members.Setup(mgr, members.Options{Namespace: namespace}),
	)
}
