package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/rights"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
	"github.com/fleet-runtime/fleet-runtime/fleet"
)

type check struct {
	*shared

	rights rightsFlags
	server string
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
	k.rights.addFlags(c.Flags())
	c.Flags().StringVar(&k.server, "member-server", "", "The URL at which you reach the member, if the hub has another one")
	return c
}

func (k *check) run(ctx context.Context, name string) error {
	hub, err := k.hub.connect()
	if err != nil {
		return err
	}
	found, err := hub.find(ctx, name)
	if err != nil {
		return err
	}
	token, err := mint(ctx, hub, found, name)
	if err != nil {
		if reason := fleet.ReasonOf(err); found.access != nil && reason != "" {
			err = &exitError{code: codeNotReady, err: fmt.Errorf("%w\nDo this: %s", err, cureOf(reason, found.access))}
		}
		return err
	}
	tellf(k.streams.Out, "Credentials:  a token until %s\n", token.Expires.UTC().Format(time.RFC3339))
	config, err := access.Config(found.access.Spec)
	if err != nil {
		return err
	}
	config.BearerToken, config.Timeout = token.Value(), 10*time.Second
	if k.server != "" {
		config.Host = k.server
	}
	if err := k.reach(config); err != nil {
		return err
	}
	if len(k.rights.files) == 0 {
		tellf(k.streams.Out, "Rights:       not asked for; name with --rules what the controllers need\n")
		return nil
	}
	return k.ask(ctx, config)
}

// reach asks the member for its version.
func (k *check) reach(config *rest.Config) error {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	version, err := c.ServerVersion()
	if err != nil {
		return &exitError{code: codeNotReady, err: fmt.Errorf("reach the member at %s from here: %s: %w", config.Host, fleet.ReasonOf(err), err)}
	}
	tellf(k.streams.Out, "Reachable:    %s at %s\n", version.GitVersion, config.Host)
	return nil
}

// ask asks the member whether the account has the rights in the files.
func (k *check) ask(ctx context.Context, config *rest.Config) error {
	wanted, err := k.rights.read(k.streams.In, defaultAccount())
	if err != nil {
		return err
	}
	want, err := membership.GivenBy(wanted.Objects)
	if err != nil {
		return err
	}
	c, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return err
	}
	lacking, err := rights.Lacking(ctx, c, want)
	if err != nil {
		return fmt.Errorf("ask the member (%s): %w", config.Host, err)
	}
	if len(lacking) == 0 {
		tellf(k.streams.Out, "Rights:       all %d are there\n", len(want))
		return nil
	}
	tellf(k.streams.Out, "Rights:       %d of %d are missing\n", len(lacking), len(want))
	for _, right := range lacking {
		tellf(k.streams.Out, "  %s\n", right)
	}
	return &exitError{code: codeNotReady, err: errors.New("rights are missing; mcctl rbac gives them")}
}
