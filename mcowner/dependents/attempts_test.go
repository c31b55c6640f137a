package dependents

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestThePortOfAnAttemptIsNoNews: a connection that ends says its own port, which is another one each time. Neither an event nor a
// status nor a slice is written for that, and it fails since it began to.
func TestThePortOfAnAttemptIsNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOwnerState(mcreconcile.Request{})
		begin := time.Now()
		attempt := func(port int) (news bool, result Result) {
			err := fmt.Errorf("applying: read tcp [::1]:%d->[::1]:6443: read: connection reset by peer", port)
			<-time.After(time.Minute) // of a fake clock
			news = o.report("one", view{plan: &plan{}}, report{Result: Result{
				Err: err, Unready: err, Objects: []ObjectResult{{Key: types.NamespacedName{Name: "a"}, State: Failed, Err: err}},
			}})
			o.tell("one", err)
			return news, o.parts["one"].result
		}
		_, first := attempt(53422)
		o.mu.Lock()
		o.events = nil // recorded
		o.mu.Unlock()
		news, second := attempt(53423)
		if news || len(o.events) > 0 {
			t.Errorf("another port is news: %t, with %d events", news, len(o.events))
		}
		if since := second.Since.Sub(begin); since != time.Minute {
			t.Errorf("it fails since the first attempt, and this says since %s after the start", since)
		}
		if before, now := entryOf(first), entryOf(second); before.Error != now.Error || before.Objects[0].Error != now.Objects[0].Error {
			t.Errorf("a slice says %q, and then %q", before.Error, now.Error)
		}
		if news, _ := attempt(1); news {
			t.Error("a third port is news")
		}
		o.tell("one", errors.New("applying: read tcp [::1]:1->[::1]:6444: read: connection reset by peer"))
		if len(o.events) != 1 {
			t.Errorf("that another server fails is told by %d events", len(o.events))
		}
	})
}
