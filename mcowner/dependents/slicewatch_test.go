package dependents_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/mcowner/orphans"
)

// TestWhatIsTakenFromASliceIsPutBack although nothing else happens, and the collector of another program removes nothing for that.
func TestWhatIsTakenFromASliceIsPutBack(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 1)
	one := w.Members[0]
	p := w.run(w.sliced())
	w.create(w.Local, w.owner("a", one.Name))
	w.areSliced(one)
	eventually(t, "the program is at rest", p.isAtRest)
	before := w.mustGet(one, copyOf("a"))
	w.editSlice(one.Name, func(s *v1alpha1.DependentSlice) {
		s.Clusters[0].Name, s.Clusters[0].Identities = "elsewhere", nil
	})
	eventually(t, "the slice has the member again", func() bool { return w.inSlices()[one.Name].MayHaveDependents })
	w.collect(func(c *orphans.Collector) { c.OwnersIn = mcowner.Clusters{Local: true} })
	w.swept(one, 3)
	w.unharmed(one, before)
}

// TestOwnWritesHaveNoSliceReadAgain, although their events may be sooner than the answers.
func TestOwnWritesHaveNoSliceReadAgain(t *testing.T) {
	t.Parallel()
	w := newSlicedWorld(t, 3)
	p := w.run(w.sliced())
	var lists atomic.Int32
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // as taps are
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/namespaces/"+w.ns+"/dependentslices") {
			lists.Add(1)
		}
		return nil
	}
	p.power.tap.Store(&tap)
	w.create(w.Local, w.owner("a", names(w.Members)...))
	w.areSliced(w.Members...)
	for range 3 {
		for _, cp := range w.Members {
			uid := w.mustGet(cp, copyOf("a")).UID
			w.remove(cp, copyOf("a"))
			eventually(t, "the slice has the new one", func() bool {
				for _, o := range w.inSlices()[cp.Name].Objects {
					if o.Name == copyOf("a") && o.UID != "" && o.UID != uid {
						return true
					}
				}
				return false
			})
		}
	}
	eventually(t, "the program is at rest", p.isAtRest)
	if n := lists.Load(); n > 1 {
		t.Errorf("the slices were read %d times", n)
	}
}
