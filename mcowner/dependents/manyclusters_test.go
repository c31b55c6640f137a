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
	few := max(costs(500), costs(500)) // the machine may be busy with one of them
	if many := costs(20_000); many > 200*few {
		t.Errorf("40 times as many clusters take %.0f times as long", float64(many)/float64(few))
	}
}
