// Package placement lets what builds a controller tell the manager in which clusters that runs.
package placement

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Controller is a controller, and where it runs. The manager of mcmanager takes it apart. To any other manager it is the
// controller.
type Controller struct {
	manager.Runnable
	Where string // follows "The controller runs in"
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c Controller) NeedLeaderElection() bool {
	elected, ok := c.Runnable.(manager.LeaderElectionRunnable)
	return !ok || elected.NeedLeaderElection()
}

// Warmup is called by controller-runtime before the replica is the leader.
func (c Controller) Warmup(ctx context.Context) error {
	if warm, ok := c.Runnable.(interface {
		Warmup(ctx context.Context) error
	}); ok {
		return warm.Warmup(ctx)
	}
	return nil
}

// Manager is a manager for one controller, and where that runs.
type Manager struct {
	manager.Manager
	Where string
}

// Add implements manager.Manager.
func (m Manager) Add(r manager.Runnable) error { return m.Manager.Add(Controller{r, m.Where}) }
