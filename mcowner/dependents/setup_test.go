package dependents

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestOwnersOfOneClusterDelayThoseOfAnotherByOneTurn: also those that are always back, and at a target that they share.
func TestOwnersOfOneClusterDelayThoseOfAnotherByOneTurn(t *testing.T) {
	t.Parallel()
	q := mcqueue.New("", workQueue())
	defer q.ShutDown()
	workOf := func(origin, name string) work {
		owner := mcreconcile.Request{ClusterName: mcreconcile.ClusterName(origin)}
		owner.NamespacedName = types.NamespacedName{Namespace: "default", Name: name}
		return work{owner: owner, in: "target", task: place}
	}
	for n := range 10_000 {
		q.Add(workOf("busy", fmt.Sprint(n)))
	}
	for n := range 100 {
		quiet := workOf("quiet", fmt.Sprint(n))
		q.Add(quiet)
		for turns := 0; ; turns++ {
			w, _ := q.Get()
			q.Done(w)
			if w == quiet {
				break
			}
			q.Add(w)
			if turns > 0 {
				t.Fatalf("the work %v has waited for more than one turn of another cluster's owners", quiet)
			}
		}
	}
}

// TestWhoeverLeavesWaitsForOthersInShortPauses, and other work backs off.
func TestWhoeverLeavesWaitsForOthersInShortPauses(t *testing.T) {
	t.Parallel()
	limiter := workerOptions(config{}).RateLimiter
	for w, most := range map[work]time.Duration{{in: "a", task: hold}: mostHold, {in: "a"}: mostPause} {
		var pause time.Duration
		for range 20 {
			pause = limiter.When(w)
		}
		if pause != most {
			t.Errorf("the pause of %s is %s, want %s", w, pause, most)
		}
	}
}
