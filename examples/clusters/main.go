// Command clusters starts control planes on this machine, for the examples: go run ./examples/clusters east west. It
// writes a kubeconfig file with a context for each. They end with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var file = flag.String("file", "fleet.kubeconfig", "write the kubeconfig to this `file`")

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "clusters:", err)
		os.Exit(1)
	}
}

func run(names []string) (err error) {
	if len(names) == 0 {
		return errors.New("say what the clusters are to be called, such as: clusters east west")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	clusters, err := mctest.New(ctx, mctest.Options{Clusters: len(names) - 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clusters.Close()) }()

	contexts := clientcmdapi.NewConfig()
	contexts.CurrentContext = names[0]
	for i, cp := range append([]*mctest.ControlPlane{clusters.Local}, clusters.Members...) {
		if err := add(contexts, names[i], cp.Kubeconfig()); err != nil {
			return err
		}
	}
	if err := clientcmd.WriteToFile(*contexts, *file); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(*file)) }()
	fmt.Printf("The contexts of %s are %q. Ctrl-C ends the clusters.\n", *file, names)
	<-ctx.Done()
	return nil
}

// add adds a context for the cluster of a kubeconfig.
func add(contexts *clientcmdapi.Config, name string, kubeconfig []byte) error {
	one, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return err
	}
	used := one.Contexts[one.CurrentContext]
	contexts.Clusters[name], contexts.AuthInfos[name] = one.Clusters[used.Cluster], one.AuthInfos[used.AuthInfo]
	contexts.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	return nil
}
