package members

import (
	"context"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// slowCache takes its time to end what is asked of it.
type slowCache struct {
	cache.Cache

	release chan struct{}
}

func (c slowCache) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-c.release
	return ctx.Err()
}

// TestTheManagerWaitsForAllThatFollowsTheFleet, also for what takes the Members over when the replica ends.
func TestTheManagerWaitsForAllThatFollowsTheFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		elected, begun := make(chan struct{}), make(chan struct{})
		close(elected)
		close(begun)
		slow := slowCache{release: make(chan struct{})}
		f := follower{&mirror{
			fleet: fleet.New(fleet.Options{}), elected: elected, begun: begun, specs: specs{slow, "fleet"},
			shown: shown{of: map[string]*record{}, strangers: map[string]bool{}},
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Start(ctx) }()
		synctest.Wait()
		stop()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("it ends before what it has begun")
		}
		close(slow.release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
