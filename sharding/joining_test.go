package sharding

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/sharding/internal/protocol"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// aboutTable reports whether a request is to write the table.
func aboutTable(req *http.Request) bool {
	return req.Method == http.MethodPut && path.Base(req.URL.Path) == "test.table"
}

// inTable reports whether a replica is in the table.
func (s *scene) inTable(name string) bool {
	s.t.Helper()
	for _, lease := range s.leases() {
		if lease.Name == "test.table" {
			content, err := protocol.Decode(lease.Annotations[annotationBuckets])
			if err != nil {
				s.t.Fatal(err)
			}
			return slices.ContainsFunc(content.Sessions, func(m protocol.Member) bool { return strings.HasPrefix(m.Session, name+"-") })
		}
	}
	return false
}

// TestASessionThatEndsBeforeItHasJoinedIsNotLetIn by a write that is under way: what is given to it then would have no owner until it was
// silent for as long as a Lease lasts.
func TestASessionThatEndsBeforeItHasJoinedIsNotLetIn(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	a := s.start("a")
	s.becomesShared(a)
	b := s.prepare("b")
	letsIn, once := make(chan struct{}), sync.Once{}
	a.faults.set(func(req *http.Request) fault {
		if aboutTable(req) {
			once.Do(func() { close(letsIn) })
			return delay
		}
		return pass
	})
	b.faults.set(func(req *http.Request) fault {
		if aboutTable(req) {
			return refuse
		}
		return pass
	})
	b.run()
	<-letsIn
	b.faults.all(pass)
	b.stop()
	a.faults.all(pass)
	c := s.start("c")
	stage.Eventually(t, "the next one has joined", func() bool {
		if s.inTable("b") {
			t.Error("a session is in the table that has ended")
			return true
		}
		return s.inTable("c")
	})
	s.becomesShared(a, c)
}

// TestASessionThatCannotBeFencedStandsInNobodysWay. What it owned has no owner, as it may work again. A person can delete its Lease.
func TestASessionThatCannotBeFencedStandsInNobodysWay(t *testing.T) {
	t.Parallel()
	s := newScene(t, 30)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	lease := "test.s." + b.session()
	before := b.holds()
	a.faults.set(func(req *http.Request) fault {
		if path.Base(req.URL.Path) == lease && req.Method != http.MethodGet {
			return forbid
		}
		return pass
	})
	b.kill()
	stage.Eventually(t, "the replica says what it cannot do, and what helps", func() bool {
		problem := a.replica.Status().Problem
		return strings.Contains(problem, "the test forbids it") && strings.Contains(problem, "kubectl delete lease -n "+s.namespace+" "+lease)
	})
	c := s.start("c")
	stage.Eventually(t, "another joins, and has its part of what can be had", func() bool { return len(c.holds()) >= 5 })
	owners := s.owners()
	for _, name := range before {
		if owners[name] != "" {
			t.Errorf("%s took %s, whose owner cannot be fenced", owners[name], name)
		}
	}
	a.faults.all(pass)
	s.becomesShared(a, c)
}

// TestASessionWhoseLeaseMayNotBeChangedIsFencedByItsDeletion.
func TestASessionWhoseLeaseMayNotBeChangedIsFencedByItsDeletion(t *testing.T) {
	t.Parallel()
	s := newScene(t, 10)
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	lease := "test.s." + b.session()
	a.faults.set(func(req *http.Request) fault {
		if path.Base(req.URL.Path) == lease && req.Method == http.MethodPut {
			return forbid
		}
		return pass
	})
	b.kill()
	stage.Eventually(t, "the other owns all members", func() bool { return len(a.holds()) == 10 })
	b.faults.all(pass)
	b.worker.revive()
	s.becomesShared(a, b)
}

// TestAPodThatComesAgainIsAReplicaOfItsOwn, whatever its name: the same one at once after it was killed, as that of a StatefulSet, the same one
// again after it has ended, and another. What the one before had is owned again each time.
func TestAPodThatComesAgainIsAReplicaOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newScene(t, 20)
	pod, b := s.start("pod-0"), s.start("b")
	s.becomesShared(pod, b)
	pod.kill()
	again := s.start("pod-0")
	s.becomesShared(again, b)
	again.stop()
	third := s.start("pod-0")
	s.becomesShared(third, b)
	third.kill()
	renamed := s.start("pod-1")
	s.becomesShared(renamed, b)
	stage.Eventually(t, "nothing is left of those before", func() bool {
		return len(s.leases()) == 3 && len(b.replica.Status().Replicas) == 2
	})
}
