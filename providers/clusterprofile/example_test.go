package clusterprofile_test

import (
	"flag"
	"log"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
)

// The members are the clusters of an inventory. Which programs give credentials for them is in a file that the operator
// of the controller writes.
func ExampleReadAccessProviders() {
	file := flag.String("clusterprofile-provider-file", "clusterprofile-provider-file.json", "the programs that give credentials")
	flag.Parse()
	access, err := clusterprofile.ReadAccessProviders(*file)
	if err != nil {
		log.Fatal(err)
	}
	provider := clusterprofile.Provider{Namespace: "fleet", AccessProviders: access}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// The program is in the code.
func ExampleProvider() {
	_ = clusterprofile.Provider{
		Namespace: "fleet",
		AccessProviders: []clusterprofile.AccessProvider{{
			Name: "google",
			ExecConfig: clientcmdv1.ExecConfig{
				APIVersion:         "client.authentication.k8s.io/v1",
				Command:            "gke-gcloud-auth-plugin",
				ProvideClusterInfo: true,
			},
		}},
	}
}
