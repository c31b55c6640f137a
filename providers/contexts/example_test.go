package contexts_test

import (
	"flag"
	"log"
	"path/filepath"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

// The members are the contexts that "kubectl config get-contexts" lists and whose names begin with "prod-".
func ExampleProvider() {
	provider := contexts.Provider{Contexts: []string{"prod-*"}}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// Each file in a folder is the kubeconfig of a cluster, such as a mounted Secret with a key for each. Whatever the contexts
// are called, the members have the names of the files.
func ExampleProvider_folder() {
	provider := contexts.Provider{
		Files: []string{"/etc/fleet"},
		Name: func(c contexts.Context) fleet.ClusterName {
			name, _, _ := strings.Cut(filepath.Base(c.File), ".")
			return fleet.ClusterName(name)
		},
	}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// The user of the program says which contexts: --contexts east,west. The flag --kubeconfig is controller-runtime's, for
// the local cluster.
func ExampleProvider_flag() {
	var provider contexts.Provider
	flag.Func("contexts", "`names` of contexts, separated by commas (default: all)", func(names string) error {
		provider.Contexts = append(provider.Contexts, strings.Split(names, ",")...)
		return nil
	})
	flag.Parse()
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
