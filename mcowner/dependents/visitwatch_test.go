package dependents

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatAVisitWatchHasSeenHoldsAfterOwnersMoved: an owner's cluster was another replica's when its dependent was listed, and is this
// one's when that is deleted.
func TestWhatAVisitWatchHasSeenHoldsAfterOwnersMoved(t *testing.T) {
	t.Parallel()
	c := placing().engine
	c.works = &feed[work]{}
	c.watches = newWatches(c.cfg.fleet, c.cfg.name, nil, c.ledger)
	others := true
	c.watches.placing, c.watches.isOthers = c.placing, func(mcreconcile.ClusterName) bool { return others }
	kind := remote.Untyped(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	seen := &dependentsSeen{of: &visitWatch{all: newVisitWatches(c), in: at.Name, kind: kind, tried: make(chan struct{}), unlisted: 1}}
	dependent := &metav1.PartialObjectMetadata{ObjectMeta: owned(t, ownerNamed("a")).ObjectMeta}
	_ = seen.Replace([]any{dependent}, "1") // it has no errors
	dependent.ResourceVersion = "2"
	_ = seen.Update(dependent)
	if n := len(c.works.early); n != 0 {
		t.Errorf("there are %d requests for an owner that another replica works on", n)
	}
	others = false
	_ = seen.Delete(dependent)
	if n := len(c.works.early); n != 1 {
		t.Errorf("there are %d requests once it is deleted, want one for the owner", n)
	}
}
