package kubeconfig_test

import (
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// The members are the clusters whose kubeconfigs are in the labelled Secrets of one namespace:
//
//	kubectl create secret generic east --namespace fleet --from-file=kubeconfig
//	kubectl label secret east --namespace fleet fleet-runtime.dev/kubeconfig=true
func ExampleProvider() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

// The members are clusters that several tools keep in the Secrets of one namespace. Of those of Argo CD, only the ones
// with the label env=prod are taken.
func ExampleProvider_formats() {
	prod := kubeconfig.ArgoCD()
	prod.Selectors = []labels.Selector{
		labels.SelectorFromSet(labels.Set{"argocd.argoproj.io/secret-type": "cluster", "env": "prod"}),
	}
	provider := kubeconfig.Provider{
		Namespace: "clusters",
		Formats: []kubeconfig.Format{
			kubeconfig.Labelled(),
			prod,
			kubeconfig.ClusterAPI(),
			kubeconfig.Flux(labels.SelectorFromSet(labels.Set{"example.com/cluster": "true"})),
			kubeconfig.Istio(),
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

// What a Secret of Argo CD describes, and why another is refused.
func ExampleArgoCD() {
	for _, config := range []string{
		`{"bearerToken": "…", "tlsClientConfig": {"serverName": "kubernetes"}}`,
		`{"awsAuthConfig": {"clusterName": "east"}}`,
	} {
		secret := &corev1.Secret{Data: map[string][]byte{
			"name":   []byte("east"),
			"server": []byte("https://east.example.com"),
			"config": []byte(config),
		}}
		members, err := kubeconfig.ArgoCD().Members(secret, kubeconfig.Reading{})
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range members {
			if m.Err != nil {
				fmt.Println(m.Name, "is not used:", m.Err)
			} else {
				fmt.Println(m.Name, "is at", m.Config.Host)
			}
		}
	}
	// Output:
	// east is at https://east.example.com
	// east is not used: the Secret of Argo CD is refused: awsAuthConfig needs the provider's option Allow.Exec
}

// A format of one's own: Secrets with an address, a CA and a token, as many scripts make them.
func ExampleFormat() {
	format := kubeconfig.Format{
		Selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{"example.com/cluster": "true"})},
		Members: func(secret *corev1.Secret, _ kubeconfig.Reading) ([]fleet.Member, error) {
			return []fleet.Member{{Config: &rest.Config{
				Host:            string(secret.Data["server"]),
				BearerToken:     string(secret.Data["token"]),
				TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data["ca.crt"]},
			}}}, nil
		},
	}
	provider := kubeconfig.Provider{Formats: []kubeconfig.Format{format, kubeconfig.Labelled()}}
	if _, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{}); err != nil {
		log.Fatal(err)
	}
}
