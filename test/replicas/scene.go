package replicas

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/sharding"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// leaseOfTests is short, and long enough for a machine that is busy.
const leaseOfTests = 6 * time.Second

// scene is members that change all the time, and processes that share them.
type scene struct {
	*testing.T
	hub       *mctest.ControlPlane
	namespace string // of the Leases
	members   map[fleet.ClusterName]*member
	takes     time.Duration // a reconcile
	processes map[string]*stage.Program
	control   *control
	quiet     func() // ends changes
}

// newScene has so many members, which change so many times a second, all together.
func newScene(t *testing.T, clusters *mctest.Fleet, members, changes int) *scene {
	t.Helper()
	s := &scene{
		T: t, hub: clusters.Local, namespace: clusters.Local.CreateNamespace(t), takes: 50 * time.Millisecond,
		members: map[fleet.ClusterName]*member{}, processes: map[string]*stage.Program{},
	}
	for i := range members {
		name := fleet.ClusterName(fmt.Sprintf("member-%d", i))
		s.members[name] = newMember(t, clusters.Members[i%len(clusters.Members)])
	}
	s.control = newControl(s.hub, s.namespace, s.members["member-0"])
	var busy sync.WaitGroup
	end := make(chan struct{})
	s.quiet = sync.OnceFunc(func() { close(end); busy.Wait() })
	t.Cleanup(s.quiet)
	for _, m := range s.members {
		busy.Go(func() { m.change(t, time.Duration(members)*time.Second/time.Duration(changes), end) })
	}
	busy.Go(func() { s.control.run(t, end) })
	return s
}

// start starts replicas, which become members of the table in this order.
func (s *scene) start(names ...string) {
	s.Helper()
	for _, name := range names {
		s.run(name, s.hub.Config(), func(*role) {})
	}
}

// run starts a replica that reaches the hub by a config.
func (s *scene) run(name string, hub *rest.Config, edit func(*role)) {
	s.Helper()
	kubeconfig, err := mctest.Kubeconfig(hub)
	if err != nil {
		s.Fatal(err)
	}
	r := role{
		Hub: filepath.Join(s.TempDir(), "kubeconfig"), Members: map[fleet.ClusterName]place{}, Takes: s.takes,
		Sharding: sharding.Options{
			ID: "test", Namespace: s.namespace, Name: name, Revision: "a", LeaseDuration: leaseOfTests, Settle: time.Second,
		},
	}
	if err := os.WriteFile(r.Hub, kubeconfig, 0o600); err != nil {
		s.Fatal(err)
	}
	for name, m := range s.members {
		r.Members[name] = place{Host: m.recorder.Config().Host, CA: m.recorder.Config().CAData, Namespace: m.namespace}
	}
	edit(&r)
	s.processes[name] = r.start(s)
	stage.Eventually(s.T, name+" is in the table", func() bool { return s.session(name) != "" })
}

// session is that of a replica in the table of who owns what. It is empty where the replica has not joined.
func (s *scene) session(name string) string {
	s.Helper()
	var leases coordinationv1.LeaseList
	if err := s.hub.Client().List(s.Context(), &leases, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	of := regexp.MustCompile(`"(` + name + `-[^"]*)"`)
	for _, lease := range leases.Items {
		if found := of.FindStringSubmatch(lease.Annotations["fleet-runtime.dev/buckets"]); found != nil {
			return found[1]
		}
	}
	return ""
}

// become waits until these replicas have written to members of their own, since then, and nobody else has.
func (s *scene) become(since time.Time, owners ...string) {
	s.Helper()
	stage.Eventually(s.T, fmt.Sprintf("the owners are %s", owners), func() bool {
		now := map[string]bool{}
		for _, m := range s.members {
			last := m.last()
			if last == nil || last.Answered.Before(since) {
				return false
			}
			now[last.By] = true
		}
		return slices.Equal(slices.Sorted(maps.Keys(now)), owners)
	})
}

// without waits until these replicas own nothing any more, and everything has been written to since then.
func (s *scene) without(since time.Time, gone ...string) {
	s.Helper()
	stage.Eventually(s.T, fmt.Sprintf("others work on what was %s's", gone), func() bool {
		for _, m := range s.members {
			if last := m.last(); last == nil || last.Answered.Before(since) || slices.Contains(gone, last.By) {
				return false
			}
		}
		return true
	})
}

// end ends the replicas, and finds out whether each change was reconciled, and never two replicas wrote at once.
func (s *scene) end() {
	s.Helper()
	s.quiet()
	defer s.explain()
	stage.Eventually(s.T, "each change is reconciled", func() bool {
		for _, m := range s.members {
			m.look(s.T)
			if len(m.unsigned()) > 0 {
				return false
			}
		}
		return true
	})
	for _, p := range s.processes {
		p.Stop()
	}
	changes, moves := 0, 0
	for name, m := range s.members {
		terms := termsOf(s.T, name, m.read())
		changes, moves = changes+len(m.made), moves+len(terms)-1
		mustFollow(s.T, name, terms)
	}
	s.Logf("%d changes in %d members, all reconciled; %d moves", changes, len(s.members), moves)
}

// isServed finds out whether each member had an owner all the time since then, but for as long as may be. What the test itself was
// late with is added, and what it took the machine to do what a replica does to take a member over, once for each member.
func (s *scene) isServed(since time.Time, but time.Duration) {
	s.Helper()
	control := s.control.slowest(since)
	var worst time.Duration
	for name, m := range s.members {
		gap, at := m.longestGap(since)
		limit := but + s.takes + m.longestPause(since) + time.Duration(len(s.members))*control
		if worst = max(worst, gap); gap > limit {
			s.Errorf("nobody wrote to %s for %s from %s on, want at most %s: %s, and what the machine was late", name,
				gap.Round(time.Millisecond), at.Format(time.StampMilli), limit.Round(time.Millisecond), but)
		}
	}
	s.Logf("no member was without an owner for longer than %s, of %s and what the machine was late (a control took %s)",
		worst.Round(time.Millisecond), but, control.Round(time.Millisecond))
}

// moves counts since then how often members have come to another replica.
func (s *scene) moves(since time.Time) (all, most int) {
	s.Helper()
	for name, m := range s.members {
		n := 0
		for i, term := range termsOf(s.T, name, m.read()) {
			if i > 0 && term.first.After(since) {
				n++
			}
		}
		all, most = all+n, max(most, n)
	}
	return all, most
}

// explain says which changes were not reconciled, and what replicas have tried there.
func (s *scene) explain() {
	for name, m := range s.members {
		for _, change := range m.unsigned() {
			cm := &corev1.ConfigMap{}
			err := m.cp.Client().Get(s.Context(), client.ObjectKey{Namespace: m.namespace, Name: change}, cm)
			s.Logf("%s of %s was not reconciled: it has %v, version %s, created %s (%v)", change, name, cm.Data, cm.ResourceVersion, cm.CreationTimestamp, err)
			for _, w := range m.read() {
				if w.change == change {
					s.Logf("%s has tried it with epoch %d from %s to %s: %d", w.By, w.Epoch,
						w.Arrived.Format(time.StampMicro), w.Answered.Format(time.StampMicro), w.Status)
				}
			}
		}
	}
}
