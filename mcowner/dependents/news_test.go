package dependents

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatIsNews is told to the owner's account, and nothing else is: with many clusters, each costs a request.
func TestWhatIsNews(t *testing.T) {
	t.Parallel()
	at := types.NamespacedName{Namespace: "default", Name: "a"}
	object := func(state State, uid types.UID, version string, err error) ObjectResult {
		return ObjectResult{Key: at, State: state, UID: uid, Err: err, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}}
	}
	before := func() Result {
		return Result{Targeted: true, Err: errGoing, Objects: []ObjectResult{object(Applied, "1", "7", nil)}}
	}
	site := record.Site{Name: "one", Identity: "1"}
	cases := map[string]struct {
		change func(*report)
		seq    uint64
		want   bool
	}{
		"Nothing":             {change: func(*report) {}},
		"The same error":      {change: func(r *report) { r.Err = fmt.Errorf("%w", errGoing) }},
		"Another plan":        {change: func(*report) {}, seq: 1, want: true},
		"Another error":       {change: func(r *report) { r.Err = ErrLeaving }, want: true},
		"No error":            {change: func(r *report) { r.Err = nil }, want: true},
		"Not targeted":        {change: func(r *report) { r.Targeted = false }, want: true},
		"Another state":       {change: func(r *report) { r.Objects[0].State = Unchanged }, want: true},
		"Another UID":         {change: func(r *report) { r.Objects[0].UID = "2" }, want: true},
		"Another version":     {change: func(r *report) { r.Objects[0].Object.SetResourceVersion("8") }, want: true},
		"Not there":           {change: func(r *report) { r.Objects[0].Object = nil }, want: true},
		"Another name":        {change: func(r *report) { r.Objects[0].Key.Name = "b" }, want: true},
		"Another kind":        {change: func(r *report) { r.Objects[0].Kind.Kind = "Pod" }, want: true},
		"An object's error":   {change: func(r *report) { r.Objects[0].Err = errGoing }, want: true},
		"No objects":          {change: func(r *report) { r.Objects = nil }, want: true},
		"A site to drop":      {change: func(r *report) { r.drop = []record.Site{site} }, want: true},
		"A stray":             {change: func(r *report) { r.stray = &site }, want: true},
		"More is to be done":  {change: func(r *report) { r.again = true }, want: true},
		"Only given up":       {change: func(r *report) { r.givenUp = true }},
		"Only kinds, as such": {change: func(r *report) { r.kinds = []schema.GroupVersionKind{{Kind: "Pod"}} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwnerState(mcreconcile.Request{}, "1")
			if !o.report("one", view{plan: &plan{}}, report{Result: before()}) {
				t.Error("the first result is no news")
			}
			r := report{Result: before()}
			tc.change(&r)
			if got := o.report("one", view{plan: &plan{seq: tc.seq}}, r); got != tc.want {
				t.Errorf("it is news: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestSinceIsWhenItBecameSo: of the cluster by what its error says, of an object by its state.
func TestSinceIsWhenItBecameSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOwnerState(mcreconcile.Request{}, "1")
		begin := time.Now()
		step := func(state State, err error) (cluster, object int) {
			<-time.After(time.Second) // of a fake clock
			o.report("one", view{plan: &plan{}}, report{Result: Result{Err: err, Objects: []ObjectResult{{Key: types.NamespacedName{Name: "a"}, State: state}}}})
			result := o.parts["one"].result
			return int(result.Since.Sub(begin).Seconds()), int(result.Objects[0].Since.Sub(begin).Seconds())
		}
		for i, tc := range []struct {
			state           State
			err             error
			cluster, object int
		}{
			{Applied, nil, 1, 1},
			{Applied, nil, 1, 1},
			{Unchanged, nil, 1, 3},
			{Failed, errors.New("refused"), 4, 4},
			{Failed, errors.New("refused"), 4, 4},
			{Failed, errors.New("refused again"), 6, 4},
			{Unchanged, nil, 7, 7},
		} {
			cluster, object := step(tc.state, tc.err)
			if cluster != tc.cluster || object != tc.object {
				t.Errorf("after step %d the cluster is so since %ds, and the object since %ds, want %ds and %ds", i, cluster, object, tc.cluster, tc.object)
			}
		}
	})
}

// TestThePortOfAnAttemptIsNoNews: a connection that ends says its own port, which is another one each time. Neither an event nor a
// status nor a slice is written for that, and it fails since it began to.
func TestThePortOfAnAttemptIsNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOwnerState(mcreconcile.Request{}, "1")
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
