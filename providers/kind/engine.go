package kind

import (
	"errors"
	"fmt"
	"os"
	"strings"

	kind "sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/exec"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// engine is what is used of kind's library.
type engine interface {
	// List returns the names of the clusters that have nodes.
	List() ([]string, error)
	// KubeConfig returns the kubeconfig of a cluster. If internal is set, it is for use in the network of the nodes.
	KubeConfig(name string, internal bool) (string, error)
}

// errNoEngine says what to do.
var errNoEngine = errors.New("there is no container engine: install Docker, Podman or nerdctl, with its program in PATH")

// detect returns the engine that the kind command would use. KIND_EXPERIMENTAL_PROVIDER is how its users choose:
// https://kind.sigs.k8s.io/docs/user/rootless/#creating-a-kind-cluster-with-rootless-podman
func detect() (engine, error) {
	switch name := os.Getenv("KIND_EXPERIMENTAL_PROVIDER"); name {
	case "docker":
		return kind.NewProvider(kind.ProviderWithDocker()), nil
	case "podman":
		return kind.NewProvider(kind.ProviderWithPodman()), nil
	case "nerdctl", "finch", "nerdctl.lima":
		return kind.NewProvider(kind.ProviderWithNerdctl(name)), nil
	}
	option, err := kind.DetectNodeProvider()
	if err != nil {
		return nil, errNoEngine
	}
	return kind.NewProvider(option), nil
}

// fault is an error with the reason that the member's state shows.
type fault struct {
	error
	reason string
}

// Reason returns one word for what is wrong.
func (f fault) Reason() string { return f.reason }

// Unwrap returns the error.
func (f fault) Unwrap() error { return f.error }

// list returns the names of the clusters.
func list(e engine) ([]string, error) {
	names, err := e.List()
	if run := exec.RunErrorForError(err); run != nil {
		// What the program has printed says why, such as that a daemon does not run.
		return nil, fmt.Errorf("asking for the kind clusters: %w: %s", err, strings.TrimSpace(string(run.Output)))
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the kind clusters: %w", err)
	}
	return names, nil
}

// describe returns the member that a cluster is, without name and labels. What a program has printed does not get into
// the error, nor what kind says of a kubeconfig that it cannot read: both may have credentials in them.
func describe(e engine, cluster string, internal bool) fleet.Member {
	text, err := e.KubeConfig(cluster, internal)
	if err == nil {
		return kubeconfig.Member("", []byte(text), "", kubeconfig.Allow{})
	}
	why := fmt.Errorf("kind has no kubeconfig of cluster %q: it is being created, or its nodes do not run", cluster)
	if run := exec.RunErrorForError(err); run != nil {
		why = fmt.Errorf("%w (%w)", why, run)
	}
	return fleet.Member{Err: fault{why, ReasonNoKubeconfig}}
}
