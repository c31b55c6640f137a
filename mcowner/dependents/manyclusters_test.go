package dependents

import (
	"fmt"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatAnAccountCostsGrowsWithTheClustersAlone, not with their square: it is kept under the lock of the owner, and of ten thousand
// clusters each asks for its part.
func TestWhatAnAccountCostsGrowsWithTheClustersAlone(t *testing.T) {
	t.Parallel()
	costs := func(clusters int) time.Duration {
		names := make([]mcreconcile.ClusterName, clusters)
		for i := range names {
			names[i] = mcreconcile.ClusterName(fmt.Sprintf("cluster-of-the-fleet-%06d", i))
		}
		a := newAccounting(t, config{}, &plan{targets: names}, names...)
		start := time.Now()
		for _, name := range names {
			if v, _ := a.o.begin(name); len(v.sites) != 1 || !a.o.concerns(name) {
				t.Fatalf("%s is not in the record", name)
			}
			a.o.partLocked(name).done = true
		}
		a.mustOpen(t)
		a.settle()
		return time.Since(start)
	}
	var times float64
	for range 5 { // the machine may be busy with something else meanwhile
		few := costs(500)
		if times = float64(costs(20_000)) / float64(few); times < 200 {
			return
		}
	}
	t.Errorf("40 times as many clusters take %.0f times as long", times)
}
