package upstream_test

import (
	"log"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	"sigs.k8s.io/multicluster-runtime/providers/file"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/upstream"
)

// The members are the clusters of a provider of multicluster-runtime, here those of the kubeconfig files in a folder.
func ExampleProvider() {
	files, err := file.New(file.Options{KubeconfigDirs: []string{"/etc/clusters"}})
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), upstream.Provider{Provider: files}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// The logical clusters of kcp have no namespace kube-system to tell which they are, but names that are never used again.
func ExampleProvider_identity() {
	var workspaces multicluster.Provider // that of kcp
	provider := upstream.Provider{
		Provider: workspaces,
		Identity: func(name fleet.ClusterName, _ cluster.Cluster) string { return "kcp.example.com/" + string(name) },
	}
	if _, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{}); err != nil {
		log.Fatal(err)
	}
}
