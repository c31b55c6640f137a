package members_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// TestReplicasWriteTheMembersThatTheyOwn: what people say holds wherever a member goes.
func TestReplicasWriteTheMembersThatTheyOwn(t *testing.T) {
	t.Parallel()
	const count = 9
	s := newStage(t, 1)
	cp := s.Members[0]
	ns := cp.CreateNamespace(t)
	s.configMap(cp, ns, "a")
	s.create("member-0", "member-0", paused)
	s.create("member-1", "member-1", drained)
	replicas := map[string]*manager{}
	for _, name := range []string{"a", "b", "c"} {
		m := s.newManager(s.Local.Config(), mcmanager.Sharded(sharding.Options{
			ID: "shared", Namespace: s.ns, Name: name, LeaseDuration: 6 * time.Second, Settle: time.Second,
		}))
		for i := range count {
			m.set(fleet.Member{Name: fleet.ClusterName(fmt.Sprintf("member-%d", i)), Config: cp.Config()})
		}
		m.start()
		replicas[name] = m
	}
	s.spread(count, "a", "b", "c")
	gone := s.get("member-0").Status.Replica
	replicas[gone].end()
	delete(replicas, gone)
	s.spread(count, slices.Collect(maps.Keys(replicas))...)
	for name, m := range replicas {
		if n := m.total("member-0", ns); n > 0 {
			t.Errorf("replica %s has reconciled an object of a paused member", name)
		}
		if n := m.total("member-1", ns); n > 0 {
			t.Errorf("replica %s has reconciled an object of a drained member", name)
		}
	}
	for i := range count {
		m := s.get(fmt.Sprintf("member-%d", i))
		lease := &coordinationv1.Lease{}
		if m.Status.Lease == nil {
			t.Errorf("%s names no Lease", m.Name)
		} else if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: m.Status.Lease.Namespace, Name: m.Status.Lease.Name}, lease); err != nil {
			t.Error(err)
		}
	}
	s.say("member-0", free)
	s.say("member-1", free)
	s.eventually("both are reconciled", func() bool {
		n := 0
		for _, m := range replicas {
			for _, name := range []fleet.ClusterName{"member-0", "member-1"} {
				objects := m.total(name, ns)
				n += objects
			}
		}
		return n == 2
	})
	for _, m := range replicas {
		m.Remove("member-2")
	}
	s.eventually("the Member of a member that has left is gone", func() bool { return s.get("member-2") == nil })
	s.create("nobody", "nobody")
	s.becomes("nobody", "says so", func(m *v1alpha1.Member) bool { return m.Status.State == v1alpha1.StateUnknown })
}

// spread waits until each of the replicas has members, and each Member says what it is.
func (s *stage) spread(count int, replicas ...string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%v have the members", replicas), func() bool {
		owners := map[string]int{}
		for _, m := range s.list() {
			want := fleet.Ready
			if m.Spec.Drained {
				want = fleet.Drained
			}
			if m.Status.State != string(want) || m.Status.Paused != m.Spec.Paused || m.Status.Epoch == 0 {
				return false
			}
			owners[m.Status.Replica]++
		}
		sum := 0
		for _, name := range replicas {
			sum += owners[name]
		}
		return len(owners) == len(replicas) && sum == count
	})
}
