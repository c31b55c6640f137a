package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

type federate struct {
	*shared

	member  *side
	target  targetFlags
	account string
	issuer  string
	// ca is the file of --discovery-ca, which is given if hasCA. Then an empty one means the certificates of the system.
	ca    string
	hasCA bool
}

func newFederate(s *shared) *cobra.Command {
	f := &federate{shared: s, member: newSide(memberSide)}
	c := &cobra.Command{
		Use:   "federate NAME --member-context CONTEXT --service-account ACCOUNT",
		Short: "Print what has a member accept tokens of the hub",
		Long: `Prints the AuthenticationConfiguration with which the API server of a member accepts tokens of one service account of the hub, made for
this member alone. Give it to the member's API server by --authentication-config, and then run mcctl join --federated ACCOUNT.

The member's API server asks the hub, without credentials, for the keys by which it knows the tokens. The hub lets it if the ClusterRole
system:service-account-issuer-discovery is bound to the group system:unauthenticated. The keys are at the hub's --service-account-jwks-uri,
which the member must reach too.

The member knows that server by the CA of the hub's API server. Where the issuer or --discovery-url is another server, as with managed
clusters, --discovery-ca names its CA, and --discovery-ca="" says that it has a public certificate.

Nothing is changed on any side.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.hasCA = c.Flags().Changed(discoveryCA)
			return f.run(c.Context(), args[0])
		},
	}
	flags := c.Flags()
	f.member.addFlags(flags)
	f.target.addFlags(flags)
	flags.StringVar(&f.account, "service-account", "", "The account of the hub, in the namespace of --namespace. Required")
	flags.StringVar(&f.issuer, "discovery-url", "", "The URL at which the member reaches the hub's /.well-known/openid-configuration, if that is not below the issuer")
	flags.StringVar(&f.ca, discoveryCA, "", `A file with the CA of the server at that URL or at the issuer; "" means the CAs of the member's machine, as for a public server. Default: the hub's CA`)
	return c
}

// discoveryCA is the flag for the certificates of where the member asks for keys.
const discoveryCA = "discovery-ca"

// authority returns the certificates by which the member knows the server that it asks for the hub's keys.
func (f *federate) authority(hub *rest.Config) ([]byte, error) {
	if !f.hasCA {
		return authority(hub, hubSide)
	}
	ca, err := authority(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: f.ca}}, hubSide)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", discoveryCA, err)
	}
	return ca, nil
}

func (f *federate) run(ctx context.Context, name string) error {
	if len(validation.IsDNS1123Subdomain(f.account)) > 0 {
		return usageError("say with --service-account which account of the hub the member is to accept, as its name")
	}
	hub, err := f.hub.connect(ctx)
	if err != nil {
		return err
	}
	member, err := f.member.connectMember(ctx)
	if err != nil {
		return err
	}
	target, err := f.target.read(name, validation.DNS1123SubdomainMaxLength, hub.namespace, member.config)
	if err != nil {
		return err
	}
	if _, err := distinct(ctx, hub, member); err != nil {
		return err
	}
	theirs, err := member.issuer(ctx)
	if err != nil {
		return err
	}
	ours, err := hub.issuer(ctx)
	if err != nil {
		return err
	}
	if ours == theirs {
		return equalIssuers(ours)
	}
	ca, err := f.authority(hub.config)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(membership.Authentication{
		Issuer: ours, DiscoveryURL: f.issuer, CA: ca, Audience: access.Audience(target.Server, target.CABundle, target.TLSServerName),
		Subject: "system:serviceaccount:" + target.Namespace + ":" + f.account, Legacy: !servesV1(member.config),
	}.Configuration())
	if err != nil {
		return err
	}
	_, err = f.streams.Out.Write(text)
	return err
}

// issuer returns the issuer of a cluster's tokens.
func (r *reached) issuer(ctx context.Context) (string, error) {
	issuer, err := access.ReadIssuer(ctx, r.config)
	if err != nil {
		return "", fmt.Errorf("ask the %s (%s) for the issuer of its tokens: %w", r.name, r.config.Host, err)
	}
	return issuer, nil
}

func equalIssuers(issuer string) error {
	return fmt.Errorf("hub and member have the same issuer, %s, so the member takes the hub's tokens for its own and refuses them: "+
		"nothing was changed; give one of them another --service-account-issuer, or join with --minted", issuer)
}

// differ makes sure that the member does not take the hub's tokens for its own, as far as the caller may read the issuers.
func differ(ctx context.Context, hub, member *reached) error {
	theirs, err := member.issuer(ctx)
	ours, hubErr := hub.issuer(ctx)
	if err != nil || hubErr != nil || ours != theirs {
		return nil //nolint:nilerr // the manager tells, once it tries the member
	}
	return equalIssuers(ours)
}

// servesV1 reports whether a cluster knows version v1 of the configuration, which came with Kubernetes 1.34. What cannot be asked is
// taken for new.
func servesV1(config *rest.Config) bool {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return true
	}
	info, err := c.ServerVersion()
	if err != nil {
		return true
	}
	var minor int
	if _, err := fmt.Sscanf(info.Minor, "%d", &minor); err != nil {
		return true
	}
	return info.Major != "1" || minor >= 34
}
