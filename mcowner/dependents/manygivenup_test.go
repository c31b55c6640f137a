package dependents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestGivingUpCostsLittle, whatever somebody writes there: what an owner gives up is read once, and not for each cluster that is not in the
// fleet.
func TestGivingUpCostsLittle(t *testing.T) {
	t.Parallel()
	names := make([]mcreconcile.ClusterName, 500)
	for i := range names {
		names[i] = mcreconcile.ClusterName(fmt.Sprint(i))
	}
	var times float64
	for range 5 { // the machine may be busy with something else meanwhile
		a := newAccounting(t, config{}, givingUp(strings.Repeat(",", 128<<10)+" 7 "), names...)
		a.mustOpen(t)
		a.late("7")
		start := time.Now()
		a.plan.givenUp()
		once := time.Since(start)
		start = time.Now()
		a.release()
		times = float64(time.Since(start)) / float64(once)
		if n := len(a.record.Sites); n != len(names)-1 || a.record.Has("7") {
			t.Fatalf("%d clusters are left of %d, and the one that is given up: %t", n, len(names), a.record.Has("7"))
		}
		if times < 100 {
			return
		}
	}
	t.Errorf("with %d clusters it takes %.0f times as long as to read it", len(names), times)
}
