package dependents_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAnOwnerThatIsOrphanedWhileItsEventsAreLateKeepsItsDependents: the cache has it as it is after the garbage collector, and the event before
// that has yet to come. With an event filter that drops it, it comes all the same.
func TestAnOwnerThatIsOrphanedWhileItsEventsAreLateKeepsItsDependents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	one, r := w.Members[0], w.orphaning()
	r.Targets, r.ReleaseAfter, r.Sweep.Interval = nil, time.Millisecond, time.Hour
	var waits atomic.Int32
	tells := funcr.New(func(_, args string) {
		if strings.Contains(args, "has yet to say how") {
			waits.Add(1)
		}
	}, funcr.Options{})
	late := make(chan struct{})
	p := w.runWith(func(mgr mcmanager.Manager) error {
		return r.SetupWithManager(mgr, func(b *mcbuilder.Builder) {
			b.WithLogConstructor(func(*mcreconcile.Request) logr.Logger { return tells })
			b.WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool {
				if obj.GetName() == "slow" {
					<-late
				}
				return obj.GetDeletionTimestamp().IsZero()
			}))
		})
	})
	w.create(w.Local, w.owner("a"))
	for _, cp := range w.Members {
		w.isCopied(cp, "a")
	}
	eventually(t, "the program is at rest", p.isAtRest)
	before := w.mustGet(one, copyOf("a"))
	w.create(w.Local, w.configMap("slow"))
	w.removeAsOrphan("a")
	<-p.members.Remove("member-2")
	<-p.members.Remove("member-3")
	eventually(t, "it is planned time and again, or its dependents are gone", func() bool {
		now := w.get(one, copyOf("a"))
		return now == nil || now.DeletionTimestamp != nil || waits.Load() >= 3
	})
	close(late)
	w.isGone(w.Local, "a")
	w.isReleased(one, before)
}
