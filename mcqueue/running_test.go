package mcqueue

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatRunsIsShownOldestFirst: with when it began, and whether it waits for a cluster, until it is done.
func TestWhatRunsIsShownOldestFirst(t *testing.T) {
	q := New("", Options[mcreconcile.Request]{})
	defer q.ShutDown()
	before := time.Now()
	taken := make([]mcreconcile.Request, 0, 3)
	for _, name := range []string{"z", "a"} {
		q.Add(mcreconcile.Request{ClusterName: "east", Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}})
		req, _ := q.Get()
		taken = append(taken, req)
	}
	q.Add(mcreconcile.Request{ClusterName: "west"})
	west, _ := q.Get()
	q.Yield(taken[1], "east")
	got := q.Running("east")
	if len(got) != 2 || got[0].Request != "cluster://east/shop/z" || got[1].Request != "cluster://east/shop/a" || got[0].Silent || !got[1].Silent {
		t.Fatalf("what runs is %+v, want z, and then a, which is silent", got)
	}
	if got[0].Since.Before(before) || got[0].Since.After(got[1].Since) || got[1].Since.After(time.Now()) {
		t.Errorf("they began at %v and %v, after %v", got[0].Since, got[1].Since, before)
	}
	for _, req := range append(taken, west) {
		q.Done(req)
	}
	if got := q.Running("east"); len(got) != 0 {
		t.Errorf("after all is done, %+v runs", got)
	}
}
