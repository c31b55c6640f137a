package mcmanager_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

func TestAtLeastReadyComparesMembers(t *testing.T) {
	cases := map[string]struct {
		reason         string
		ready, broken  int
		percent        int
		passes         bool
		errorMentioned string
	}{
		"Empty":      {"Nothing is missing from an empty fleet.", 0, 0, 100, true, ""},
		"AllReady":   {"All of them are.", 3, 0, 100, true, ""},
		"JustEnough": {"Half of them is half.", 1, 1, 50, true, ""},
		"TooFew":     {"A third is no half; the error says what is wrong.", 1, 2, 34, false, `1 of 3 members are Ready, 34 % must be: cluster "broken-1": the cluster is not ready (Pending since `},
		"None":       {"None is less than one percent.", 0, 1, 1, false, "0 of 1"},
		"Impossible": {"There are no more than all.", 1, 0, 101, true, ""},
		"NoDemand":   {"Zero percent is always there.", 0, 1, 0, true, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, stop := fleettest.Run(t, fleet.Options{})
				for i := range tc.ready {
					set(t, f, fleet.Member{Name: fleet.ClusterName(fmt.Sprintf("ready-%d", i)), Cluster: &struct{ cluster.Cluster }{}, Identity: "it"})
				}
				for i := range tc.broken {
					set(t, f, fleet.Member{Name: fleet.ClusterName(fmt.Sprintf("broken-%d", i)), Err: errors.New("broken")})
				}
				synctest.Wait()
				err := mcmanager.AtLeastReady(f.Fleet, tc.percent)(nil)
				if (err == nil) != tc.passes || err != nil && !strings.Contains(err.Error(), tc.errorMentioned) {
					t.Errorf("the check says %v: %s", err, tc.reason)
				}
				stop()
			})
		})
	}
}

func TestADrainedMemberNeedNotBeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, stop := fleettest.Run(t, fleet.Options{})
		set(t, f, fleet.Member{Name: "ready", Cluster: &struct{ cluster.Cluster }{}, Identity: "it"})
		set(t, f, fleet.Member{Name: "drained", Err: errors.New("broken")})
		synctest.Wait()
		f.HoldBy(func(name fleet.ClusterName) fleet.Hold { return fleet.Hold{Drained: name == "drained"} })
		f.HoldChanged("drained")
		synctest.Wait()
		if err := mcmanager.AtLeastReady(f.Fleet, 100)(nil); err != nil {
			t.Error(err)
		}
		stop()
	})
}

// TestAMemberWithAKindThatIsNotSyncedCountsUnlessAskedFor: a member that lacks a kind is Ready.
func TestAMemberWithAKindThatIsNotSyncedCountsUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, stop := fleettest.Run(t, fleet.Options{})
		if err := f.IndexField(t.Context(), &corev1.Pod{}, "a", nil); err != nil {
			t.Fatal(err)
		}
		set(t, f, fleet.Member{Name: "lacks", Cluster: &unindexed{}, Identity: "it"})
		synctest.Wait()
		if err := mcmanager.AtLeastReady(f.Fleet, 100)(nil); err != nil {
			t.Errorf("the check says %v", err)
		}
		err := mcmanager.AtLeastReady(f.Fleet, 100, mcmanager.KindsSynced)(nil)
		if err == nil || !strings.Contains(err.Error(), "0 of 1 members") || !strings.Contains(err.Error(), "Pod: Error: no index") {
			t.Errorf("the check for kinds says %v", err)
		}
		stop()
	})
}

// unindexed is a cluster that takes no index.
type unindexed struct{ cluster.Cluster }

func (u *unindexed) GetFieldIndexer() client.FieldIndexer { return u }

func (*unindexed) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return errors.New("no index")
}

func TestAMemberThatIsDrainedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := fleettest.Run(t, fleet.Options{})
		set(t, f, fleet.Member{Name: "leaves", Cluster: &struct{ cluster.Cluster }{}, Identity: "it"})
		set(t, f, fleet.Member{Name: "stays", Cluster: &struct{ cluster.Cluster }{}, Identity: "it"})
		synctest.Wait()
		e, err := f.Engagement("leaves")
		if err != nil {
			t.Fatal(err)
		}
		_, leave, err := e.Join(t.Context(), time.Second) // it has a name
		if err != nil {
			t.Fatal(err)
		}
		f.Remove("leaves")
		synctest.Wait()
		if status, _ := f.Status("leaves"); status.State != fleet.Draining {
			t.Fatalf("the member is %s", status.State)
		}
		if err := mcmanager.AtLeastReady(f.Fleet, 100)(nil); err != nil {
			t.Errorf("the check says %v while a member is drained", err)
		}
		leave()
	})
}

func set(t *testing.T, f fleet.Members, m fleet.Member) {
	t.Helper()
	if err := f.Set(m); err != nil {
		t.Fatal(err)
	}
}
