package fleet

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// idling is a reconcile that held no worker for a part of its time.
type idling struct {
	named

	idle time.Duration
}

func (i idling) Idle() time.Duration { return i.idle }

func TestTheOwnershipIsToldForHowLongReconcilesHoldWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spent []time.Duration
		s := newShares("a")
		s.spent = func(took time.Duration) { spent = append(spent, took) }
		f := running(t, Options{Ownership: s})
		set(t, f, Member{Name: "a", Cluster: &existing{}})
		synctest.Wait()
		<-time.After(time.Minute) // of which no reconcile has anything
		_, end := reconciling(t, f, "a")
		<-time.After(3 * time.Second)
		end()
		for _, idle := range []time.Duration{2 * time.Second, time.Hour} {
			_, _, end, err := f.Controller("things").Begin(t.Context(), "a", idling{"a reconcile", idle})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(5 * time.Second)
			end(reconcile.Result{}, errors.New("it has failed, which took as long"))
		}
		if len(spent) != 3 || spent[0] != 3*time.Second || spent[1] != 3*time.Second || spent[2] != 0 {
			t.Errorf("reconciles have taken %v, want 3s, 5s but for 2s, and nothing less than nothing", spent)
		}
	})
}

// BenchmarkBegin is what the fleet adds to each reconcile.
func BenchmarkBegin(b *testing.B) {
	var spent atomic.Int64
	for name, told := range map[string]func(time.Duration){
		"unmeasured": nil,
		"measured":   func(took time.Duration) { spent.Add(int64(took)) },
	} {
		b.Run(name, func(b *testing.B) {
			s := newShares("a")
			s.spent = told
			f := running(b, Options{Ownership: s})
			if err := f.set(Member{Name: "a", Cluster: &existing{}}); err != nil {
				b.Fatal(err)
			}
			for f.now("a").Engagement == nil {
				runtime.Gosched()
			}
			c := f.Controller("things")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _, end, err := c.Begin(b.Context(), "a", named("a reconcile"))
					if err != nil {
						b.Fatal(err)
					}
					end(reconcile.Result{}, nil)
				}
			})
		})
	}
}
