package upstream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// calls is a fleet that notes what it is told.
type calls struct {
	mu    sync.Mutex
	notes []string
}

func (c *calls) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, text)
}

// Set implements fleet.Members.
func (c *calls) Set(m fleet.Member) error {
	if err := m.Validate(); err != nil {
		return err
	}
	text := "set " + string(m.Name) + " to " + m.Cluster.GetConfig().Host
	if m.Labels != nil {
		text += ", labels " + labels.FormatLabels(m.Labels)
	}
	if m.Identity != "" {
		text += ", identity " + m.Identity
	}
	c.note(text)
	return nil
}

func (c *calls) Leave(m fleet.Member) (left <-chan struct{}, err error) {
	return nil, c.Set(m)
}

// Remove implements fleet.Members.
func (c *calls) Remove(name fleet.ClusterName) (drained <-chan struct{}) {
	c.note("remove " + string(name))
	return nil
}

// SetProblem implements fleet.Members.
func (c *calls) SetProblem(fleet.Problem) {}

// want fails the test unless the fleet was told exactly this. It forgets it then.
func (c *calls) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.notes); diff != "" {
		t.Errorf("the fleet was told otherwise (-want, +got):\n%s", diff)
	}
	c.notes = nil
}

// newCluster returns a cluster that nobody may call.
func newCluster(t *testing.T, host string) cluster.Cluster {
	t.Helper()
	cl, err := cluster.New(&rest.Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// trial is a reporter under test.
type trial struct {
	*reporter
	*calls
	t   *testing.T
	end context.CancelFunc
}

// newTrial returns a reporter that ends with the test.
func newTrial(t *testing.T) trial {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	c := &calls{}
	r := trial{newReporter(ctx, c, Provider{}), c, t, end}
	t.Cleanup(func() {
		end()
		r.close()
	})
	return r
}

// engage engages a cluster as member "a" until stop is called.
func (r trial) engage(cl cluster.Cluster) (stop context.CancelFunc) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	if err := r.Engage(ctx, "a", cl); err != nil {
		r.t.Error(err)
	}
	return cancel
}

func TestAClusterIsAMemberFromItsEngagementToTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		stop := r.engage(newCluster(t, "first"))
		r.want(t, "set a to first")
		stop()
		r.want(t, "remove a")
		defer r.engage(newCluster(t, "second"))()
		r.want(t, "set a to second")
	})
}

func TestTheEndOfAReplacedClusterDoesNotRemoveTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		stop := r.engage(newCluster(t, "old"))
		r.want(t, "set a to old")
		defer r.engage(newCluster(t, "new"))()
		r.want(t, "set a to new")
		stop()
		r.want(t)
	})
}

func TestAClusterThatIsEngagedWhileTheOldOneEndsStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		stop := r.engage(newCluster(t, "old"))
		r.want(t, "set a to old")
		stop() // the provider does not wait for what follows of that
		defer r.engage(newCluster(t, "new"))()
		synctest.Wait()
		if last := r.notes[len(r.notes)-1]; last != "set a to new" {
			t.Errorf("the fleet was told %q at last", r.notes)
		}
	})
}

func TestEngagingTheSameClusterAgainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		cl := newCluster(t, "host")
		stop := r.engage(cl)
		r.want(t, "set a to host")
		again := r.engage(cl)
		r.want(t)
		again() // the context of the engagement is the first
		r.want(t)
		stop()
		r.want(t, "remove a")
	})
}

func TestTheSameClusterMayBeEngagedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		cl := newCluster(t, "host")
		r.engage(cl)()
		synctest.Wait()
		r.notes = nil
		defer r.engage(cl)()
		r.want(t, "set a to host")
	})
}

func TestMembersHaveTheLabelsThatTheProgramGives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		r.provider.Labels = func(name fleet.ClusterName, cl cluster.Cluster) map[string]string {
			return map[string]string{"name": string(name), "host": cl.GetConfig().Host}
		}
		defer r.engage(newCluster(t, "host"))()
		r.want(t, "set a to host, labels host=host,name=a")
	})
}

func TestMembersHaveTheIdentityThatTheProgramGives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		r.provider.Identity = func(name fleet.ClusterName, cl cluster.Cluster) string {
			return string(name) + "@" + cl.GetConfig().Host
		}
		defer r.engage(newCluster(t, "host"))()
		r.want(t, "set a to host, identity a@host")
	})
}

func TestWhatCannotBeAMemberIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		if err := r.Engage(t.Context(), "", newCluster(t, "host")); !errors.Is(err, fleet.ErrInvalidMember) {
			t.Errorf("without a name: %v", err)
		}
		if err := r.Engage(t.Context(), "a", nil); !errors.Is(err, fleet.ErrInvalidMember) {
			t.Errorf("without a cluster: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Engage(ended, "a", newCluster(t, "host")); !errors.Is(err, context.Canceled) {
			t.Errorf("with a context that has ended: %v", err)
		}
		r.want(t)
	})
}

func TestTheEndOfTheProviderRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		stop := r.engage(newCluster(t, "host"))
		r.want(t, "set a to host")
		r.end()
		stop()
		r.want(t)
		r.close()
		if err := r.Engage(t.Context(), "b", newCluster(t, "host")); err == nil {
			t.Error("a cluster could be engaged after the end")
		}
	})
}

func TestNothingIsKeptOfClustersThatHaveLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTrial(t)
		for range 3 {
			stop := r.engage(newCluster(t, "host"))
			synctest.Wait()
			replaced := r.engage(newCluster(t, "other"))
			synctest.Wait()
			stop()
			replaced()
			synctest.Wait()
		}
		if len(r.slots) > 0 || len(r.indexes.indexers) > 0 {
			t.Errorf("%d names and %d indexers are kept", len(r.slots), len(r.indexes.indexers))
		}
	})
}
