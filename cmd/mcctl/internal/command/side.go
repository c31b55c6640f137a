package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of the sides, as errors and progress call them.
const (
	hubSide    = "hub"
	memberSide = "member"
)

// side is one of the two clusters that a command works on, and the flags that say which.
type side struct {
	name  string
	flags *genericclioptions.ConfigFlags
}

func newSide(name string) *side {
	flags := genericclioptions.NewConfigFlags(true)
	// The cache of discovery is not used, and the client is asked for once.
	flags.CacheDir = nil
	flags.Timeout = new(requestTimeout)
	return &side{name: name, flags: flags}
}

// addFlags adds kubectl's flags, for the member with the prefix --member-. Help shows those of the member that are needed most.
func (s *side) addFlags(to *pflag.FlagSet) {
	if s.name == hubSide {
		s.flags.AddFlags(to)
		return
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.flags.AddFlags(own)
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
	config, err := s.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the way to the %s: %w", s.name, err)
	}
	config.Wrap(endingWith(ctx))
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
