package dependents_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// TestTwoClustersOfOwnersTakeTurnsAtATarget: many owners of one wait for it, and the only one of the other is served among the
// first.
func TestTwoClustersOfOwnersTakeTurnsAtATarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	crowded, target := w.Members[0], w.Members[1]
	r := w.spread()
	r.OwnersIn = mcowner.Clusters{Local: true, Members: named(crowded.Name)}
	r.DependentsIn = mcowner.Clusters{Members: named(target.Name)}
	r.Workers, r.Timeout = 2, time.Minute // one worker at most for the target
	opened := make(chan struct{})
	open := sync.OnceFunc(func() { close(opened) })
	defer open()
	p := w.run(r)
	tap := func(req *http.Request) (answered func()) {
		if req.Method == http.MethodPatch && req.URL.Host == hostOf(target) {
			<-opened
		}
		return func() {}
	}
	p.power.tap.Store(&tap)

	const many = 30
	waiting := func() int {
		stats := p.GetFleet().Queues("member-2")[controller+"-placements"]
		return stats.Depth + stats.InFlight
	}
	for i := range many {
		w.create(crowded, w.owner(fmt.Sprint("many-", i), target.Name))
	}
	eventually(t, "all of the crowd wait for the target", func() bool { return waiting() == many })
	w.create(w.Local, w.owner("single", target.Name))
	eventually(t, "the single one waits too", func() bool { return waiting() == many+1 })
	open()
	eventually(t, "all are served", func() bool { return len(w.list(target)) == many+1 })
	served := w.list(target)
	slices.SortFunc(served, func(a, b corev1.ConfigMap) int {
		order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
		if err != nil {
			t.Error(err)
		}
		return order
	})
	at := slices.IndexFunc(served, func(cm corev1.ConfigMap) bool { return cm.Name == copyOf("single") })
	if at > 2 {
		t.Errorf("%d owners of the one cluster were served before the only one of the other", at)
	}
}
