package fleet

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// following is an Observer that notes the steps that have ended.
type following struct {
	mu    sync.Mutex // guards what follows
	steps []string
	why   error
}

// Begin implements Observer.
func (f *following) Begin(step Step) (end func(err error)) {
	return func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		what := string(step.Kind) + " " + string(step.Member)
		if err != nil {
			what += " failed"
		}
		f.steps, f.why = append(f.steps, what), step.Why
	}
}

// Transport implements Observer.
func (*following) Transport(_ ClusterName, rt http.RoundTripper) http.RoundTripper { return rt }

func TestAnObserverIsToldOfEachStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newShares("a", "c"), &following{}
		f := running(t, Options{Ownership: s, Observer: o})
		want := func(steps ...string) {
			t.Helper()
			synctest.Wait()
			o.mu.Lock()
			defer o.mu.Unlock()
			if diff := cmp.Diff(steps, o.steps); diff != "" {
				t.Errorf("the steps (-want, +got):\n%s", diff)
			}
		}
		set(t, f, Member{Name: "a", Cluster: &existing{}})
		want("connect a")
		s.give("a", "other")
		want("connect a", "hand-over a")
		if !errors.Is(o.why, errMoved) {
			t.Errorf("the hand-over is for %v, want %v", o.why, errMoved)
		}
		set(t, f, Member{Name: "c", Cluster: &existing{}})
		<-f.remove("c")
		want("connect a", "hand-over a", "connect c", "drain c")
	})
}
