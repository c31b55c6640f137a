package mcmanager

import (
	"sync"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/internal/placement"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// controllers logs of each controller in which clusters it runs, from the manager's start on. That of a controller which
// controller-runtime's builder made is the local one alone, though nothing in its code tells.
type controllers struct {
	mu      sync.Mutex // guards what follows
	started bool
	waiting []placed
}

// placed is a controller's logger, which has its name, and where it runs.
type placed struct {
	log   logr.Logger
	where string
	hint  string
}

func (p placed) tell() {
	if p.hint == "" {
		p.log.Info("The controller runs", "in", p.where)
		return
	}
	p.log.Info("The controller runs", "in", p.where, "hint", p.hint)
}

// start logs where the controllers run that there are.
func (c *controllers) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.waiting {
		p.tell()
	}
	c.started, c.waiting = true, nil
}

func (c *controllers) add(p placed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		p.tell()
		return
	}
	c.waiting = append(c.waiting, p)
}

const hintPlain = "it was built with controller-runtime's builder, which knows no members: build it with " +
	"mcbuilder.ControllerManagedBy to run it in them"

// Add implements manager.Manager.
func (m *mcManager) Add(r manager.Runnable) error {
	where, hint := "", ""
	if c, ok := r.(placement.Controller); ok {
		r, where = c.Runnable, c.Where
	}
	if err := m.local.Add(r); err != nil {
		return err
	}
	switch c := r.(type) {
	case controller.TypedController[reconcile.Request]:
		if m.provider != nil {
			hint = hintPlain
		}
		m.controllers.add(placed{c.GetLogger(), "the local cluster alone", hint})
	case controller.TypedController[mcreconcile.Request]:
		if where == "" {
			where = "the clusters that its sources name" // it was built by hand
		}
		m.controllers.add(placed{c.GetLogger(), where, ""})
	case interface{ GetLogger() logr.Logger }:
		if where != "" { // its requests are of a user's type
			m.controllers.add(placed{c.GetLogger(), where, ""})
		}
	}
	return nil
}
