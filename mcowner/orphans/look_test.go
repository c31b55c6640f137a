package orphans

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// slow is a manager without members, whose local cluster answers when it may.
type slow struct {
	mcmanager.Manager
	client.Reader
	may   chan struct{}
	asked atomic.Int32
}

// GetProvider implements mcmanager.Manager.
func (*slow) GetProvider() fleet.Provider { return nil }

// GetAPIReader implements cluster.Cluster.
func (s *slow) GetAPIReader() client.Reader { return s }

// Get implements client.Reader.
func (s *slow) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	s.asked.Add(1)
	<-s.may
	return errors.New("no answer")
}

// TestAClusterThatIsBusyIsLookedAtAfterwards: what was asked for while it was swept is done once, however often it was asked for.
func TestAClusterThatIsBusyIsLookedAtAfterwards(t *testing.T) {
	t.Parallel()
	const local = mcreconcile.LocalCluster
	mgr := &slow{may: make(chan struct{})}
	access := remote.NewAccess(mgr, "test", 0, false)
	s := &sweeper{
		Collector: &Collector{}, log: logr.Discard(), metrics: newSweepMetrics("look"), access: access, visit: access.Visit,
		names: func() []mcreconcile.ClusterName { return []mcreconcile.ClusterName{local} }, clusters: map[mcreconcile.ClusterName]*sweepMemory{},
	}
	by := way{s.eachCached, func(c *sweepMemory) *pass { return &c.cached }, s.looks.awake()}
	var group errgroup.Group
	s.Look(local)
	s.Look("unknown")
	<-s.looks.awake()
	now := s.toLookAt(by)
	if len(now) != 1 || !s.memory(local).cached.busy.Load() {
		t.Fatalf("%d clusters are to be looked at", len(now))
	}
	s.begin(t.Context(), &group, by, now)
	for range 3 {
		s.Look(local)
		<-s.looks.awake()
		if now := s.toLookAt(by); len(now) > 0 {
			t.Fatal("a cluster is looked at twice at once")
		}
	}
	close(mgr.may)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	<-s.looks.awake()
	if now = s.toLookAt(by); len(now) != 1 {
		t.Fatal("the cluster is not looked at afterwards")
	}
	s.begin(t.Context(), &group, by, now)
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.looks.awake():
		t.Error("the cluster is looked at once more")
	default:
	}
	if n := mgr.asked.Load(); n != 2 {
		t.Errorf("the cluster was swept %d times, want twice", n)
	}
}
