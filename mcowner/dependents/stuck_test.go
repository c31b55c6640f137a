package dependents

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/rollout"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAClusterWhoseTurnHasNotComeIsNotStuck while one that was begun waits for something, nor before there was time for its turn.
func TestAClusterWhoseTurnHasNotComeIsNotStuck(t *testing.T) {
	t.Parallel()
	refused := Result{Err: errors.New("refused")}
	for name, tc := range map[string]struct {
		holder Result // of the cluster that is being changed
		turned time.Duration
		want   bool
	}{
		"another is being changed":     {holder: Result{Unready: ErrWaiting}, turned: 2 * time.Minute},
		"another is refused":           {holder: refused, turned: 2 * time.Minute, want: true},
		"another was refused just now": {holder: refused, turned: time.Second},
		"another is halted":            {holder: Result{Err: fmt.Errorf("%w: %w", ErrWaiting, ErrHalted)}, turned: 2 * time.Minute, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newQueue(t)
			a.o.turned = time.Now().Add(-tc.turned)
			if got := a.stuck(tc.holder); got != tc.want {
				t.Errorf("it is stuck: %t", got)
			}
		})
	}
}

// TestAClusterIsNotStuckAsItsTurnComes: it is to be looked at.
func TestAClusterIsNotStuckAsItsTurnComes(t *testing.T) {
	t.Parallel()
	a := newQueue(t)
	a.o.progress.Note("a", rollout.Complete)
	if a.o.grant(1000); a.stuck(Result{}) {
		t.Error("it is stuck as its turn comes")
	}
	if a.o.turned = time.Now().Add(-2 * time.Minute); !a.stuck(Result{}) {
		t.Error("it is not stuck as nobody looks at it")
	}
}

// queue is an owner's one cluster, a, that is being changed, and another one, b, that has waited for its turn for an hour.
type queue struct{ *accounting }

func newQueue(t *testing.T) *queue {
	t.Helper()
	r := Rollout{MaxParallel: intstr.FromInt32(1), ProgressDeadline: time.Minute}
	a := newAccounting(t, config{}, &plan{seq: 1, asked: 1, rollout: r, targets: []mcreconcile.ClusterName{"a", "b"}})
	a.mustOpen(t)
	a.plan.since = time.Now().Add(-2 * time.Hour)
	a.o.progress = r.next(nil, hash{})
	_ = a.o.progress.Ask("a", of(1000))
	a.o.grant(1000)
	_ = a.o.progress.Ask("a", of(1000))
	_ = a.o.progress.Ask("b", of(1000))
	return &queue{a}
}

// stuck reports whether the cluster that waits for its turn is stuck.
func (q *queue) stuck(holder Result) bool {
	holder.Cluster = "a"
	results := []Result{holder, {
		Cluster: "b", Since: time.Now().Add(-time.Hour), Err: fmt.Errorf("%w: of 1000 clusters, 1 are changed at once", ErrWaiting),
	}}
	q.noteStuck(results)
	return results[1].Stuck
}
