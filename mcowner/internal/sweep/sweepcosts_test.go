package sweep

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestLooksListTheMembersOnce: an owner that goes may have had dependents in thousands of them, and each is looked at.
func TestLooksListTheMembersOnce(t *testing.T) {
	t.Parallel()
	names, lists := []mcreconcile.ClusterName{"a", "b", "c"}, 0
	s := &Sweeper{log: logr.Discard(), clusters: map[mcreconcile.ClusterName]*sweepMemory{}, names: func() []mcreconcile.ClusterName {
		lists++
		return names
	}}
	for _, name := range append(slices.Clone(names), "gone") {
		s.Look(name)
	}
	now, _ := s.toLookAt(way{s.eachCached, func(c *sweepMemory) *pass { return &c.cached }, s.looks.awake()})
	if len(now) != len(names) || lists != 1 {
		t.Errorf("%d clusters are looked at, want %d; the members were listed %d times for that", len(now), len(names), lists)
	}
}

// TestASweepAsksForAnOwnerWithSlicesOnce for all its dependents in a cluster: what an API server has said of one holds for the others,
// and slices are read whole.
func TestASweepAsksForAnOwnerWithSlicesOnce(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	record.NewKeys("payments", "copier").Write(owner, record.Record{Slices: &record.Slices{Namespace: "default"}}, true)
	mgr := &known{owner: owner}
	mgr.sweepDependents(t, "copier", func(c *sweepMemory) *pass { return &c.listed })
	if gets, lists := mgr.gets.Load(), mgr.lists.Load(); gets != 1 || lists != 1 {
		t.Errorf("the owner was asked for %d times, and its slices %d times", gets, lists)
	}
}
