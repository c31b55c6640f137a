package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/discovery"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/rights"
	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/vantage"
)

type check struct {
	*shared
	asking
}

// asking is how a member is asked what the account of the controllers may do there.
type asking struct {
	rights rightsFlags
	server string
}

func (a *asking) addFlags(to *pflag.FlagSet) {
	a.rights.addFlags(to)
	to.StringVar(&a.server, "member-server", "", "The URL at which you reach the member, if the hub has another one, or a proxy. "+
		"The tokens of the minter and of the controllers' account are sent there, if the server shows a certificate of the ClusterAccess's CA. "+
		"Where that has none, the certificate must have the name in spec.server, or tlsServerName")
}

func newCheck(s *shared) *cobra.Command {
	k := &check{shared: s}
	c := &cobra.Command{
		Use:   "check NAME",
		Short: "Ask a member what the controllers' account may do there",
		Long: `Makes a token of the account of the controllers as the manager does, reaches the member with it from here, and asks whether it has the
rights in the files of --rules. It changes nothing.

Exit codes: 0 if all is well, 3 if something is missing.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return k.run(c.Context(), args[0]) },
	}
	k.addFlags(c.Flags())
	return c
}

func (k *check) run(ctx context.Context, name string) error {
	if err := k.validate(); err != nil {
		return err
	}
	hub, err := k.hub.connect(ctx)
	if err != nil {
		return err
	}
	found, err := hub.find(ctx, name)
	if err != nil {
		return err
	}
	config, expires, err := k.config(ctx, hub, found, name)
	if err != nil {
		if reason := fleet.ReasonOf(err); found.access != nil && reason != "" {
			err = &exitError{code: codeNotReady, err: fmt.Errorf("%w\nDo this: %s", err, k.cureFromHere(reason, found.access))}
		}
		return err
	}
	tellf(k.streams.Out, "Credentials:  a token until %s\n", expires.UTC().Format(time.RFC3339))
	version, err := reach(ctx, config)
	if err != nil {
		return &exitError{code: codeNotReady, err: err}
	}
	tellf(k.streams.Out, "Reachable:    %s at %s\n", version, config.Host)
	if len(k.rights.files) == 0 {
		tellf(k.streams.Out, "Rights:       not asked for; name with --rules what the controllers need\n")
		return nil
	}
	want, err := k.wanted(k.streams.In)
	if err != nil {
		return err
	}
	lacking, err := lackingOf(ctx, config, want)
	if err != nil {
		return err
	}
	if len(lacking) == 0 {
		tellf(k.streams.Out, "Rights:       all %d are there\n", len(want))
		return nil
	}
	tellf(k.streams.Out, "Rights:       %d of %d are missing\n", len(lacking), len(want))
	for _, right := range lacking {
		tellf(k.streams.Out, "  %s\n", right)
	}
	return &exitError{code: codeNotReady, err: errors.New("rights are missing; " + giveRights(found.access, "mcctl rbac gives them"))}
}

// cureFromHere is cureOf where a token was asked for from here: the hub may reach a member that the caller does not. Of what another address
// answers than that of the ClusterAccess, nothing follows for that.
func (a *asking) cureFromHere(reason string, access *accessv1alpha1.ClusterAccess) string {
	cure := cureOf(reason, access)
	ofSecret := []string{
		accessv1alpha1.ReasonSecretNotFound, accessv1alpha1.ReasonSecretInvalid, accessv1alpha1.ReasonMismatch, accessv1alpha1.ReasonInvalid, accessv1alpha1.ReasonHub,
		accessv1alpha1.ReasonNotAllowed, // of the hub, or of what has taken the minter's token for that
	}
	if a.server != "" && access.Spec.Minter != nil && !slices.Contains(ofSecret, reason) {
		return fmt.Sprintf("see that %s, of --member-server, is the member's API server; %s, which the hub uses, was not asked", a.server, access.Spec.Server)
	}
	if reason == fleet.ReasonDNS || reason == fleet.ReasonRefused || reason == fleet.ReasonTimeout {
		return "say with --member-server at which URL you reach the member from here. If you reach it nowhere, " + cure
	}
	return cure
}

// validate refuses an address to which no token may go.
func (a *asking) validate() error {
	if a.server != "" && !secure(a.server) {
		return usageError("--member-server must be a URL that begins with https://, without a user: a token is sent there")
	}
	return nil
}

// config returns the way to a member from here, with a token of the account of the controllers, which [access.Call] sends there alone.
func (a *asking) config(ctx context.Context, hub *reached, k known, name string) (config *rest.Config, expires time.Time, err error) {
	ctx = vantage.With(ctx, a.server)
	token, err := mint(ctx, hub, k, name)
	if err != nil {
		return nil, expires, err
	}
	if config, err = access.Config(k.access.Spec); err != nil {
		return nil, expires, err
	}
	config = vantage.Config(ctx, config)
	config.BearerToken = token.Value()
	return config, token.Expires, nil
}

// maxAnswer is how much of what a member answers is shown, in bytes.
const maxAnswer = 500

// reach asks a member for its version.
func reach(ctx context.Context, config *rest.Config) (version string, err error) {
	err = access.Call(config, config.BearerToken, func(config *rest.Config, by *http.Client) error {
		c, err := discovery.NewDiscoveryClientForConfigAndClient(config, by)
		if err != nil {
			return err
		}
		told, err := c.ServerVersionWithContext(ctx)
		if err == nil {
			version = oneline.Text(told.GitVersion, maxAnswer)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reach the member at %s from here: %s: %w", config.Host, fleet.ReasonOf(err), oneline.Error(err, maxAnswer))
	}
	return version, nil
}

// wanted reads the rights that the account needs.
func (a *asking) wanted(in io.Reader) ([]rights.Right, error) {
	wanted, err := a.rights.read(in, defaultAccount())
	if err != nil {
		return nil, err
	}
	return membership.GivenBy(wanted.Objects)
}

// lackingOf asks a member which rights the account does not have.
func lackingOf(ctx context.Context, config *rest.Config, want []rights.Right) (lacking []rights.Right, err error) {
	err = access.Call(config, config.BearerToken, func(config *rest.Config, by *http.Client) error {
		c, err := authorizationclient.NewForConfigAndClient(config, by)
		if err == nil {
			lacking, err = rights.Refused(ctx, c, want)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask the member (%s): %w", config.Host, oneline.Error(err, maxAnswer))
	}
	return lacking, nil
}
