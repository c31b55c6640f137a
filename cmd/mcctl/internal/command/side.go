package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/internal/paths"
)

// Names of the sides, as errors and progress call them.
const (
	hubSide    = "hub"
	memberSide = "member"
)

// side is one of the two clusters that a command works on, and the flags that say which.
type side struct {
	name    string
	flags   *genericclioptions.ConfigFlags
	timeout string // of a request
}

func newSide(name string) *side {
	flags := genericclioptions.NewConfigFlags(true)
	// The cache of discovery is not used, and the client is asked for once.
	flags.CacheDir = nil
	// One that is not zero would keep kubectl's flags from finding the cluster of a Pod, and that from heeding it.
	flags.Timeout = nil
	return &side{name: name, flags: flags, timeout: requestTimeout}
}

// addFlags adds kubectl's flags, for the member with the prefix --member-. Help shows those of the member that are needed most.
func (s *side) addFlags(to *pflag.FlagSet) {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.flags.AddFlags(own)
	own.StringVar(&s.timeout, "request-timeout", s.timeout, "The length of time to wait before giving up on a single server request, "+
		"such as 30s or 2m. Zero is for ever.")
	if s.name == hubSide {
		to.AddFlagSet(own)
		return
	}
	own.VisitAll(func(f *pflag.Flag) {
		f.Name, f.Shorthand = s.name+"-"+f.Name, ""
		f.Usage = "As --" + strings.TrimPrefix(f.Name, s.name+"-") + ", for the member"
		f.Hidden = !slices.Contains([]string{"context", "kubeconfig", "as"}, strings.TrimPrefix(f.Name, s.name+"-"))
		to.AddFlag(f)
	})
}

// reached is a cluster that can be asked.
type reached struct {
	client.Client

	name      string
	config    *rest.Config
	namespace string
}

// namespace returns that of --namespace, or of the context.
func (s *side) namespace() (string, error) {
	namespace, _, err := s.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the namespace of the %s: %w", s.name, err)
	}
	return namespace, nil
}

// connect reads the kubeconfig, and asks nothing of the server. ctx ends all requests.
func (s *side) connect(ctx context.Context) (*reached, error) {
	timeout, err := clientcmd.ParseTimeout(s.timeout)
	if err != nil {
		return nil, usageError("the time of a request to the %s is %q, and must be such as 30s or 2m", s.name, s.timeout)
	}
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the way to the %s: %w", s.name, err)
	}
	config.Timeout = timeout
	config.Wrap(endingWith(ctx))
	paths.Confine(config, "the "+s.name)
	config.QPS = -1 // hundreds of rights may be asked for, and it is for the server to say how much is too much
	namespace, err := s.namespace()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("reach the %s at %s: %w", s.name, config.Host, err)
	}
	return &reached{Client: c, name: s.name, config: config, namespace: namespace}, nil
}
