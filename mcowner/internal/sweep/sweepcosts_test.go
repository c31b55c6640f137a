package sweep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
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

// TestASweepAsksOnceForAnOwnerThatHasNothingNotedThere, and tells its controller once: whoever may write references to an owner with
// slices has these read whole by each.
func TestASweepAsksOnceForAnOwnerThatHasNothingNotedThere(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	said := record.Record{GivenUp: true, Slices: &record.Slices{Namespace: "default"}}
	record.NewKeys("payments", "copier").Write(owner, said, true)
	mgr, told := &known{owner: owner}, 0
	mgr.stray = func(mcowner.Reference, mcreconcile.ClusterName) { told++ }
	mgr.sweepDependents(t, "copier", func(c *sweepMemory) *pass { return &c.listed })
	if gets, lists := mgr.gets.Load(), mgr.lists.Load(); gets != 1 || lists != 1 || told != 1 {
		t.Errorf("the owner was asked for %d times, and its slices %d times; its controller was told %d times", gets, lists, told)
	}
}

// TestWhatFailedInASweepIsToldInFewWords: where removals are refused, each dependent has an error, and there may be any number of them.
func TestWhatFailedInASweepIsToldInFewWords(t *testing.T) {
	t.Parallel()
	s := knownSweeper(&ownerless{})
	s.OwnersIn, s.limit = mcowner.Clusters{Local: true}, newLimit(1_000_000)
	s.Keep = func(context.Context, mcowner.Reference) (bool, error) { return false, errors.New("refused") }
	var logged []string
	s.log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	in := mcowner.ClusterID{UID: "here"}
	each := func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		for i := range 1000 {
			dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("dependent-", i)}}
			of := mcowner.Reference{Fleet: "payments", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "gone", UID: "1", ClusterUID: in.UID}
			if err := errors.Join(mcowner.SetControllerReference(of, dependent, in), do(dependent)); err != nil {
				t.Error(err)
			}
		}
		return true, nil
	}
	s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), way{each, func(c *sweepMemory) *pass { return &c.listed }, nil})
	all := strings.Join(logged, "\n")
	if len(logged) != 1 || len(all) > 4000 || !strings.Contains(all, "dependent-0 is to stay: refused") || !strings.Contains(all, "990 more") {
		t.Errorf("the log has %d lines, which begin with %.300s", len(logged), all)
	}
}
