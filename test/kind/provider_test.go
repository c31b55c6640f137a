package kind

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-logr/logr"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kind"
)

// followed is a fleet of the clusters, in the process of the test: the provider of kind clusters finds them by kind's own library.
type followed struct{ *fleet.Fleet }

// follow runs a fleet of the members, until the test ends.
func (c *clusters) follow(t *testing.T) followed {
	t.Helper()
	f := fleet.New(fleet.Options{Logger: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, nil, kind.Provider{Clusters: []string{prefix + east, prefix + west}}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return followed{f}
}

// becomes waits until the fleet shows a member in a state, for a reason, and returns which cluster it is. A new one has nothing yet by
// which that is known.
func (f followed) becomes(t *testing.T, member string, state fleet.State, reason string) (identity string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the provider has %s, which is %s", member, state), func() error {
		s, known := f.Status(fleet.ClusterName(prefix + member))
		if !known || s.State != state || s.Reason != reason {
			return fmt.Errorf("it is %s (%s: %s)", s.State, s.Reason, s.Message)
		}
		identity = s.Identity
		return nil
	})
	return identity
}
