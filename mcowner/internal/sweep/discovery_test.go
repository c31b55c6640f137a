package sweep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// asked is a local cluster that serves nothing. It counts the questions after kinds, each of which is a request or two.
type asked struct {
	local
	meta.RESTMapper

	kinds map[schema.GroupKind]int
	n     int
}

// GetRESTMapper implements cluster.Cluster.
func (a *asked) GetRESTMapper() meta.RESTMapper { return a }

// RESTMapping implements meta.RESTMapper.
func (a *asked) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	a.n++
	a.kinds[kind]++
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// madeUp are the kinds that owners have noted, as a dependents.Reconciler gives them to a sweep.
type madeUp []schema.GroupVersionKind

// kindsOnOwners returns as many as so many owners can note.
func kindsOnOwners(owners int) madeUp {
	all := make(madeUp, owners*record.MostKinds)
	for n := range all {
		all[n] = schema.GroupVersionKind{Group: fmt.Sprintf("g%d.example.com", n), Version: "v1", Kind: "Any"}
	}
	return all
}

func (m madeUp) after(last schema.GroupVersionKind) (_, inTurn []schema.GroupVersionKind) {
	next := 1 + slices.Index(m, last)
	return nil, slices.Concat(m[next:], m[:next])[:record.MostKinds]
}

// TestKindsThatAreNotServedAreAskedForWithinTheLimit, as many in each pause between lists as one owner can note, whatever number others note. No more
// are remembered, and each has its turn.
func TestKindsThatAreNotServedAreAskedForWithinTheLimit(t *testing.T) {
	t.Parallel()
	const owners = 3
	synctest.Test(t, func(t *testing.T) {
		mgr := &asked{kinds: map[schema.GroupKind]int{}}
		var looks strings.Builder
		s, by := hastened(t, []client.Object{&corev1.ConfigMap{}}, Pace{QPS: 20, Listing: 10 * time.Minute}, &looks)
		s.Manager, s.access.Manager = mgr, mgr
		s.MoreKinds, s.engagement = kindsOnOwners(owners).after, s.access.Engagement
		by.places.wanted.Store(false)
		c, sweeps, busy := s.memory(mcreconcile.LocalCluster), 0, time.Duration(0)
		for range owners {
			before := mgr.n
			for began := time.Now(); time.Since(began) < 11*time.Minute; <-time.After(s.Interval) {
				since := time.Now()
				s.sweep(t.Context(), c, by)
				sweeps++
				busy += time.Since(since)
			}
			if n, most := mgr.n-before, 2*record.MostKinds; n > most { // the first of them are due again when that time is about to end
				t.Errorf("the cluster was asked %d times between two lists, want %d at most", n, most)
			}
			if most := record.MostKinds + len(s.kinds); len(c.due) > most {
				t.Errorf("%d kinds are remembered, want %d at most", len(c.due), most)
			}
		}
		if most := sweeps + int(s.QPS*float32(busy.Seconds())); mgr.n > most {
			t.Errorf("the cluster was asked %d times in sweeps that took %s, the limit allows %d", mgr.n, busy, most)
		}
		if most := owners*record.MostKinds + len(s.kinds); len(mgr.kinds) != most {
			t.Errorf("%d kinds have had their turn, want %d", len(mgr.kinds), most)
		}
	})
}

// TestMadeUpKindsHoldUpNoOther, however many clusters are asked for them: those that each sweep has are listed as often as without.
func TestMadeUpKindsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for _, members := range []int{40, 100} { // fewer, and more, than are swept side by side
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const kinds = 5
				s := newSchedule(members, kinds)
				s.MoreKinds, s.Watched = kindsOnOwners(2).after, nil // caches have none of them
				list, asked, each := s.list, 0, map[string]int{}
				s.list = func(ctx context.Context, at remote.Session, k remote.Kind, do func(client.Object) error) error {
					if k.Group == "" {
						return list(ctx, at, k, do)
					}
					s.mu.Lock()
					asked++
					each[string(at.Name())]++
					s.mu.Unlock()
					return s.limit.waitAfterQuestion(ctx)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { s.run(ctx) })
				<-time.After(40 * time.Minute)
				cancel()
				running.Wait()
				for _, pause := range s.pauses {
					if pause > 13*time.Minute {
						t.Fatalf("a kind of a member was listed again after %s, want 10 to 13 minutes", pause)
					}
				}
				if n := len(s.lists); n < members*kinds*3 {
					t.Errorf("there were %d lists in forty minutes, want at least 3 of each kind and member", n)
				}
				if len(each) != members || asked < 12000 {
					t.Errorf("of %d members %d were asked for kinds, %d times", members, len(each), asked)
				}
			})
		})
	}
}
