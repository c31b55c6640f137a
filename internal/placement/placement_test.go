package placement_test

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/fleet-runtime/fleet-runtime/internal/placement"
)

var errWarm = errors.New("warm")

// particular is a runnable that says more of itself than that it runs.
type particular struct{ manager.RunnableFunc }

func (particular) NeedLeaderElection() bool     { return false }
func (particular) Warmup(context.Context) error { return errWarm }

// TestToAnyManagerItIsTheController: one that does not take it apart treats it as it would the controller.
func TestToAnyManagerItIsTheController(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		of      manager.Runnable
		elected bool
		warm    error
	}{
		"Particular": {particular{}, false, errWarm},
		"Plain":      {manager.RunnableFunc(nil), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := placement.Controller{Runnable: tc.of}
			if got := c.NeedLeaderElection(); got != tc.elected {
				t.Errorf("it needs to be elected: %t, want %t", got, tc.elected)
			}
			if err := c.Warmup(t.Context()); !errors.Is(err, tc.warm) {
				t.Errorf("the warm-up returns %v, want %v", err, tc.warm)
			}
		})
	}
}
