package dependents_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestTargetsThatCannotBeFoundLaterAreTold, once members have changed, and the account of what is in the clusters goes on.
func TestTargetsThatCannotBeFoundLaterAreTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	one, two := w.Members[0], w.Members[1]
	var fail atomic.Bool
	r := w.spread()
	find := r.Targets
	r.Targets = func(ctx context.Context, owner *corev1.ConfigMap) ([]mcreconcile.ClusterName, error) {
		if fail.Load() {
			return nil, errors.New("the placement service does not answer")
		}
		return find(ctx, owner)
	}
	p := w.run(r)
	w.create(w.Local, w.owner("a", one.Name, two.Name))
	w.isCopied(one, "a")
	w.isCopied(two, "a")
	eventually(t, "the program is at rest", p.isAtRest)
	fail.Store(true)
	<-p.members.Remove(fleet.ClusterName(two.Name))
	w.told(w.Local, "a", dependents.EventFailed, "placement service")
	w.change(one, copyOf("a"), func(cm *corev1.ConfigMap) { clear(cm.Annotations) })
	w.told(w.Local, "a", dependents.EventConflict, copyOf("a"))
}
