package reference_test

import (
	"log"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/composite"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

// The members are the clusters to which Flux applies what is in the namespace flux-system.
func Example() {
	provider := reference.Provider{Format: reference.Flux(), Namespaces: []string{"flux-system"}}
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// Each format is about the clusters that another tool registers. Here they are one fleet, with the tool before the name.
func ExampleFormat() {
	provider := composite.Provider{
		"karmada":  reference.Provider{Format: reference.Karmada("karmada-cluster"), Namespaces: []string{"karmada-cluster"}},
		"kueue":    reference.Provider{Format: reference.Kueue("kueue-system"), Namespaces: []string{"kueue-system"}},
		"rancher":  reference.Provider{Format: reference.Rancher(), Namespaces: []string{"fleet-default"}},
		"sveltos":  reference.Provider{Format: reference.Sveltos(), Namespaces: []string{"projectsveltos"}},
		"vcluster": reference.Provider{Format: reference.VCluster(), Namespaces: []string{"tenants"}},
	}
	if _, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{}); err != nil {
		log.Fatal(err)
	}
}

// Objects of a program's own kind say in two fields where their kubeconfigs are.
func ExampleFields() {
	sites := reference.Format{
		Kinds: []schema.GroupKind{{Group: "example.com", Kind: "Site"}},
		Read:  reference.Fields{SecretName: "spec.access.secretName", Keys: []string{"kubeconfig"}}.Read,
	}
	provider := reference.Provider{Format: sites, Namespaces: []string{"sites"}}
	if _, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{}); err != nil {
		log.Fatal(err)
	}
}
