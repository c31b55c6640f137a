package command

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"

	"github.com/fleet-runtime/fleet-runtime/access"
)

func newToken(s *shared) *cobra.Command {
	return &cobra.Command{
		Use:   "token NAME",
		Short: "Print a token for a member, as a credential plugin of kubectl",
		Long: `Makes a token of the account of the controllers in a member, in the way of its ClusterAccess, and prints it as an ExecCredential. As
the exec plugin of a kubeconfig, it lets kubectl see what the controllers see. It takes the rights of the manager in the hub,
and, for a member with a minter, a way from here to the server of its ClusterAccess.

This is the only command that prints a token.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.token(c.Context(), args[0]) },
	}
}

func (s *shared) token(ctx context.Context, name string) error {
	hub, err := s.hub.connect(ctx)
	if err != nil {
		return err
	}
	k, err := hub.find(ctx, name)
	if err != nil {
		return err
	}
	token, err := mint(ctx, hub, k, name)
	if err != nil {
		return err
	}
	return json.NewEncoder(s.streams.Out).Encode(&clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{
			ExpirationTimestamp: new(metav1.NewTime(token.Expires)), Token: token.Value(),
		},
	})
}

// mint makes a token for the account of the controllers in a member, as the manager does.
func mint(ctx context.Context, hub *reached, k known, name string) (access.Token, error) {
	if k.access == nil {
		return access.Token{}, fmt.Errorf("the member %s has no ClusterAccess in the namespace %q of the hub (%s): its credentials come from elsewhere",
			name, markedAs(hub.namespace, name).Namespace, hub.config.Host)
	}
	source, err := access.NewHub(hub.config, nil)
	if err != nil {
		return access.Token{}, err
	}
	token, err := source.Token(ctx, k.access)
	if err != nil {
		return access.Token{}, fmt.Errorf("make a token for %s: %w", name, err)
	}
	return token, nil
}
