package sharding

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// strays are Leases of strangers that have the label of the replicas.
type strays struct {
	*scene
	table string // the UID of the table
}

// session returns one that looks like that of a session: the first fifty as they ought to be, the others with nonsense in it.
func (s strays) session(i int) *coordinationv1.Lease {
	name := fmt.Sprintf("stray-%08d", i)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: "test.s." + name, Labels: map[string]string{labelSharding: "test"},
		Annotations: map[string]string{
			annotationRenewal: "1", annotationTable: s.table, annotationCapacity: "1000", annotationRevision: "newest",
		},
	}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new(name), LeaseDurationSeconds: new(int32(1))}}
	if i < 50 {
		return lease
	}
	nonsense := []string{"", "-1", "99999999999999999999", strings.Repeat("x", 1<<10), "a\nb\x1b[31m", "{", "\u202e"}
	keys := []string{
		annotationRenewal, annotationTable, annotationCapacity, annotationRevision, annotationCosts, annotationMembers, annotationProgram,
		annotationDraining,
	}
	for n, key := range keys[1:] {
		lease.Annotations[key] = nonsense[(i+n)%len(nonsense)]
	}
	lease.Annotations[annotationRenewal] = fmt.Sprint(i)
	switch i % 4 {
	case 0:
		lease.Spec = coordinationv1.LeaseSpec{}
	case 1:
		lease.Spec.HolderIdentity = new("somebody")
	case 2:
		lease.Spec.LeaseDurationSeconds = new(int32(2))
	}
	return lease
}

// other returns one that is no session's of these replicas.
func (s strays) other(i int) *coordinationv1.Lease {
	lease := s.session(i)
	switch i % 3 {
	case 0:
		lease.Name = fmt.Sprintf("test.pool-%d.table", i)
		lease.Annotations[annotationBuckets] = strings.Repeat("x", 1<<10)
	case 1:
		lease.Annotations[annotationPool] = "another"
	case 2:
		lease.Annotations = nil
	}
	return lease
}

// TestAThousandStrayLeasesStandInNobodysWayForLong: some look like sessions, are let in where they make sense, and have members until
// they were silent for as long as a Lease lasts. Then they are gone. The others are left alone.
func TestAThousandStrayLeasesStandInNobodysWayForLong(t *testing.T) {
	t.Parallel()
	const sessions, others = 200, 800
	s := newScene(t, 20)
	s.lease = 15 * time.Second // so that a busy machine costs no session
	a, b := s.start("a"), s.start("b")
	s.becomesShared(a, b)
	strange := strays{s, string(s.table().UID)}
	var creating sync.WaitGroup
	for worker := range 10 {
		creating.Go(func() {
			for i := worker; i < sessions+others; i += 10 {
				lease := strange.session(i)
				if i >= sessions {
					lease = strange.other(i)
				}
				if err := s.cp.Client().Create(t.Context(), lease); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	creating.Wait()
	c := s.start("c")
	stage.Eventually(t, "those that look like sessions are gone, and the others are there", func() bool {
		return len(s.leases()) == others+3+1
	})
	s.becomesShared(a, b, c)
	if problem := a.replica.Status().Problem; problem != "" {
		t.Error(problem)
	}
}
