package dependents

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestGivingUpCostsLittle, whatever somebody writes there: what an owner gives up is read once, and not for each cluster that is not in the
// fleet.
func TestGivingUpCostsLittle(t *testing.T) {
	names := make([]mcreconcile.ClusterName, 2000)
	for i := range names {
		names[i] = mcreconcile.ClusterName(fmt.Sprint(i))
	}
	a := newAccounting(t, config{}, givingUp(strings.Repeat(",", 128<<10)+" 7 "), names...)
	a.mustOpen(t)
	a.late("7")
	if megabytes := allocated(func() { a.release() }); megabytes > 100 {
		t.Errorf("it took %d MB", megabytes)
	}
	if n := len(a.record.Sites); n != len(names)-1 || a.record.Has("7") {
		t.Errorf("%d clusters are left of %d, and the one that is given up: %t", n, len(names), a.record.Has("7"))
	}
}
