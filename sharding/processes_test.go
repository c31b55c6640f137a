package sharding_test

import (
	"os"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
	"github.com/fleet-runtime/fleet-runtime/test/replicas"
)

// TestNoTwoProcessesWriteToAMemberHoweverTheirClocksGo is here, and not with the other tests of processes, as nobody else can give a
// replica another clock.
func TestNoTwoProcessesWriteToAMemberHoweverTheirClocksGo(t *testing.T) {
	replicas.TestClocks(t, sharding.Pool.Start(t, mctest.Options{Clusters: 2}))
}

// shareByItsClock lets a process share members by a clock of its own. A signal sets it.
func shareByItsClock(opts sharding.Options, c replicas.Clock, signals <-chan os.Signal) mcmanager.FleetOption {
	if c.Rate == 0 {
		c.Rate = 1
	}
	skewed := sharding.NewSkewedClock(c.Rate)
	go func() { // it ends with the process
		for range signals {
			skewed.Jump(c.Jump)
			if c.Stops {
				skewed.Stop()
			}
			ctrl.Log.Info(replicas.ClockWasSet)
		}
	}()
	replica, err := sharding.NewWith(opts, skewed)
	if err != nil {
		panic(err)
	}
	return func(o *fleet.Options) { o.Ownership = replica }
}
