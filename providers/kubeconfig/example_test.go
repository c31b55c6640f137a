package kubeconfig_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// Secrets with another label and another key are found, and requests to members are limited.
func ExampleProvider_selectors() {
	newManager := func() (mcmanager.Manager, error) {
		provider := kubeconfig.Provider{
			Namespace: "fleet",
			Selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{"example.com/kubeconfig": "true"})},
			Key:       "config",
		}
		return mcmanager.New(ctrl.GetConfigOrDie(), provider, ctrl.Options{}, func(o *fleet.Options) {
			o.RESTConfig = func(_ fleet.Member, cfg *rest.Config) error {
				cfg.QPS, cfg.Burst = 50, 100
				return nil
			}
		})
	}
	_ = newManager
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

// Secrets of Kueue and Sveltos have no label of their own, so they are given one.
func ExampleKeyed() {
	format := kubeconfig.Keyed(labels.SelectorFromSet(labels.Set{"example.com/cluster": "true"}), "kubeconfig", "re-kubeconfig")
	secret := &corev1.Secret{Data: map[string][]byte{"re-kubeconfig": []byte("{}")}}
	members, err := format.Members(secret, kubeconfig.Reading{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(members[0].Err)
	// Output: the kubeconfig cannot be used: it has no current-context, and no other context was asked for
}

// A kubeconfig of a stranger is read in proportion to its size, and why it is refused carries no credentials.
func ExampleLoad() {
	for _, text := range []string{"clusters: [{name: east}]", "clusters: [&a {name: east}, *a]"} {
		config, err := kubeconfig.Load([]byte(text))
		if refused, ok := errors.AsType[*kubeconfig.Error](err); ok {
			fmt.Println(refused.Reason(), refused)
			continue
		}
		fmt.Println(len(config.Clusters), "cluster")
	}
	// Output:
	// 1 cluster
	// RefusedKubeconfig the kubeconfig is refused: line 1 has a YAML alias (*); write there what it stands for
}

// A program that the operator of the manager has written into a kubeconfig runs as it is there.
func ExampleExactly() {
	exec := clientcmdapi.ExecConfig{Command: "aws", Args: []string{"eks", "get-token", "--cluster-name", "east"}}
	allow := kubeconfig.Allow{Exec: []kubeconfig.Program{kubeconfig.Exactly(exec)}}
	fmt.Println(allow.Exec[0].Command, allow.Exec[0].Args)
	// Output: aws [eks get-token --cluster-name east]
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
	// east is not used: the Secret of Argo CD is refused: awsAuthConfig needs the provider's option Allow.Exec: its command is not listed there
}

// The clusters of Argo CD are in EKS. What their Secrets may run is Argo CD's own program, for clusters and roles with
// these names, and its tokens go to EKS alone.
func ExampleProgram() {
	eks := kubeconfig.Program{Command: "argocd-k8s-auth", Hosts: []string{"*.eks.amazonaws.com"}}
	withRole := eks
	eks.Args = []string{"aws", "--cluster-name", "fleet-*"}
	withRole.Args = []string{"aws", "--cluster-name", "fleet-*", "--role-arn", "arn:aws:iam::111122223333:role/fleet-*"}

	reading := kubeconfig.Reading{Allow: kubeconfig.Allow{Exec: []kubeconfig.Program{eks, withRole}}}
	for _, config := range []string{
		`{"awsAuthConfig": {"clusterName": "fleet-east", "roleARN": "arn:aws:iam::111122223333:role/fleet-reader"}}`,
		`{"awsAuthConfig": {"clusterName": "fleet-east", "roleARN": "arn:aws:iam::111122223333:role/admin"}}`,
		`{"execProviderConfig": {"command": "sh", "args": ["-c", "id"], "apiVersion": "client.authentication.k8s.io/v1"}}`,
	} {
		secret := &corev1.Secret{Data: map[string][]byte{"server": []byte("https://a.b.eks.amazonaws.com"), "config": []byte(config)}}
		members, err := kubeconfig.ArgoCD().Members(secret, reading)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(members[0].Err)
	}
	// Output:
	// <nil>
	// the Secret of Argo CD is refused: awsAuthConfig needs the provider's option Allow.Exec: its args are not those that are listed for the command
	// the Secret of Argo CD is refused: execProviderConfig needs the provider's option Allow.Exec: its command is not listed there
}

// Each tenant has a namespace for the Secrets of its clusters, and a role of its own for them. Without this, one tenant's
// Secret could use the role of another.
func ExampleFormat_tenants() {
	provider := kubeconfig.Provider{
		NamespaceSelector: labels.SelectorFromSet(labels.Set{"example.com/tenant": "true"}),
		Formats:           []kubeconfig.Format{forTenants()},
	}
	if _, err := mcmanager.New(ctrl.GetConfigOrDie(), provider, mcmanager.Options{}); err != nil {
		log.Fatal(err)
	}
}

func forTenants() kubeconfig.Format {
	format := kubeconfig.Labelled()
	members := format.Members
	format.Members = func(secret *corev1.Secret, reading kubeconfig.Reading) ([]fleet.Member, error) {
		tenant := secret.Namespace // which has no "_", so none begins like another
		reading.Allow.Exec = []kubeconfig.Program{{
			Command: "aws",
			Args:    []string{"eks", "get-token", "--cluster-name", tenant + "_*", "--region", "*", "--profile", tenant},
			Hosts:   []string{"*.eks.amazonaws.com"},
		}}
		return members(secret, reading)
	}
	return format
}

// dial connects to members, but not to the manager's own host, nor to link-local addresses, where clouds have the
// credentials of the machine. It is called with addresses that names were resolved to.
var dial = (&net.Dialer{
	Timeout: 10 * time.Second,
	ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if ip := to.Addr().Unmap(); ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified() {
			return fmt.Errorf("no member may be at %s", ip)
		}
		return nil
	},
}).DialContext

// Secrets name servers, and so choose where the manager connects to. A dialer of one's own can limit that; where there are
// network policies, these do it better.
func ExampleProvider_dial() {
	mgr, err := mcmanager.New(ctrl.GetConfigOrDie(), kubeconfig.Provider{Namespace: "fleet"}, mcmanager.Options{},
		func(o *fleet.Options) {
			o.RESTConfig = func(_ fleet.Member, cfg *rest.Config) error {
				cfg.Dial = dial
				return nil
			}
		})
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
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
