package access_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
)

// A tool makes one token for a cluster, and asks the cluster whom it takes it for.
func ExampleHub_Token() {
	ctx := context.Background()
	cfg := ctrl.GetConfigOrDie()
	hub, err := access.NewHub(cfg, nil)
	if err != nil {
		log.Fatal(err)
	}
	east := &v1alpha1.ClusterAccess{ // as read from the hub
		Spec: v1alpha1.ClusterAccessSpec{
			Server: "https://east.example.com:6443",
			Minter: &v1alpha1.Minter{SecretName: "east-minter", ServiceAccountNamespace: "fleet", ServiceAccountName: "operator"},
		},
	}
	token, err := hub.Token(ctx, east)
	if refused, ok := errors.AsType[*access.Error](err); ok && refused.Reason() == v1alpha1.ReasonMinterExpired {
		log.Fatal("the cluster has to join anew: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
	user, err := access.Check(ctx, east, token)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the cluster knows the operator as", user)
}

// A program that is no manager reaches a cluster with tokens that are renewed in place, for as long as the sources are open.
func ExampleSources() {
	hub, err := access.NewHub(ctrl.GetConfigOrDie(), nil)
	if err != nil {
		log.Fatal(err)
	}
	sources := access.NewSources(hub)
	defer sources.Close()
	if err := reach(sources); err != nil {
		log.Println(err)
	}
}

func reach(sources *access.Sources) error {
	east := &v1alpha1.ClusterAccess{
		Spec: v1alpha1.ClusterAccessSpec{
			Server:    "https://east.example.com:6443",
			Federated: &v1alpha1.Federated{ServiceAccountName: "operator"},
		},
	}
	cfg, err := access.Config(east.Spec)
	if err != nil {
		return err
	}
	source := sources.Source(east, func(token access.Token) { log.Println("there is", token) }) // which shows when it expires
	if err := source.Authorize(cfg); err != nil {
		return err
	}
	_, err = rest.HTTPClientFor(cfg) // whose requests have the token of the moment
	return err
}

// A tool asks a cluster for its version, and a cluster that redirects is not followed with the token.
func ExampleCall() {
	var east v1alpha1.ClusterAccess // as read from the hub
	var token access.Token          // of Hub.Token
	cfg, err := access.Config(east.Spec)
	if err != nil {
		log.Fatal(err)
	}
	err = access.Call(cfg, token.Value(), func(cfg *rest.Config, client *http.Client) error {
		asked, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
		if err != nil {
			return err
		}
		version, err := asked.ServerVersion()
		fmt.Println(version, err)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A hub whose issuer is that of a cluster too cannot be trusted by it.
func ExampleReadIssuer() {
	issuer, err := access.ReadIssuer(context.Background(), ctrl.GetConfigOrDie())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(issuer, access.Audience("https://east.example.com:6443", nil, ""))
}

// The controller keeps the status of ClusterAccesses and the minters' own tokens.
func ExampleController() {
	var mgr manager.Manager // the operator's
	if err := (access.Controller{}).SetupWithManager(mgr); err != nil {
		log.Fatal(err)
	}
}

// The hub's administrator says which accounts of a cluster may be imported, and into which namespaces: nobody may by default.
func Example_allowedImports() {
	east := v1alpha1.ClusterAccess{}
	east.Spec.AllowedImports = []v1alpha1.AllowedImports{{
		Namespaces: []string{"shop"}, ServiceAccounts: []string{"default/pod-lister"},
	}}
	fmt.Println(east.Spec.AllowedImports[0].ServiceAccounts)
	// Output: [default/pod-lister]
}
