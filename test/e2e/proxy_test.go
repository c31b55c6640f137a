package e2e

import (
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// newProxy starts a network in front of a control plane's API server. It ends with the test.
func newProxy(t *testing.T, cp *mctest.ControlPlane) *stage.Network {
	t.Helper()
	return stage.NewNetworkTo(t, cp)
}

// newSlowProxy limits the bytes a second towards the client.
func newSlowProxy(t *testing.T, cp *mctest.ControlPlane, rate int) *stage.Network {
	t.Helper()
	p := newProxy(t, cp)
	p.Limit(rate)
	return p
}
