package sweep

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
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

// sliced is a manager without members, in whose cluster there is an owner with slices. It counts how often the API server is asked.
type sliced struct {
	mcmanager.Manager

	owner       *corev1.ConfigMap
	gets, lists int
}

// GetProvider implements mcmanager.Manager.
func (*sliced) GetProvider() fleet.Provider { return nil }

// GetCache implements cluster.Cluster.
func (s *sliced) GetCache() cache.Cache { return slicedCache{nil, s} }

// GetAPIReader implements cluster.Cluster.
func (s *sliced) GetAPIReader() client.Reader { return s }

// Get answers with the owner, or says which cluster it is. Whole owners are read from the cache.
func (s *sliced) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		s.owner.DeepCopyInto(obj)
	case *metav1.PartialObjectMetadata:
		if key.Name != s.owner.Name {
			obj.UID = "here"
			return nil
		}
		s.gets++
		obj.ObjectMeta = *s.owner.ObjectMeta.DeepCopy()
	default:
		obj.SetUID("here")
	}
	return nil
}

// List answers that there are no slices.
func (s *sliced) List(context.Context, client.ObjectList, ...client.ListOption) error {
	s.lists++
	return nil
}

// slicedCache reads what the manager does.
type slicedCache struct {
	cache.Cache

	sliced *sliced
}

// Get implements client.Reader.
func (c slicedCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.sliced.Get(ctx, key, obj, opts...)
}

// TestASweepAsksForAnOwnerWithSlicesOnce for all its dependents in a cluster: what an API server has said of one holds for the others,
// and slices are read whole.
func TestASweepAsksForAnOwnerWithSlicesOnce(t *testing.T) {
	t.Parallel()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}}
	record.NewKeys("payments", "copier").Write(owner, record.Record{Slices: &record.Slices{Namespace: "default"}}, true)
	mgr := &sliced{owner: owner}
	s := knownSweeper(mgr)
	in := mcowner.ClusterID{UID: "here"}
	of, err := mcowner.ReferenceTo("payments", in, owner, scheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	of.Manager = "copier"
	each := func(_ context.Context, _ remote.Session, _ remote.Kind, _ *sweepMemory, do func(client.Object) error) (bool, error) {
		for i := range 5 {
			dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("dependent-", i)}}
			if err := mcowner.SetControllerReference(of, dependent, in); err != nil {
				t.Error(err)
			}
			if err := do(dependent); err != nil {
				t.Error(err)
			}
		}
		return true, nil
	}
	s.sweep(t.Context(), s.memory(mcreconcile.LocalCluster), way{each, func(c *sweepMemory) *pass { return &c.listed }, nil})
	if mgr.gets != 1 || mgr.lists != 1 {
		t.Errorf("the owner was asked for %d times, and its slices %d times", mgr.gets, mgr.lists)
	}
}
