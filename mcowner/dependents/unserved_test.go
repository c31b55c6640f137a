package dependents_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// groupsAsked counts how often the program asks a cluster for API groups, or versions of them, whose names end with suffix.
func groupsAsked(p *process, cp *mctest.ControlPlane, suffix string) *atomic.Int32 {
	n := &atomic.Int32{}
	tap := func(req *http.Request) (answered func()) { //nolint:unparam // as taps are
		path := strings.Split(strings.TrimPrefix(req.URL.Path, "/"), "/")
		if req.URL.Host == hostOf(cp) && path[0] == "apis" && len(path) < 4 && strings.HasSuffix(path[1], suffix) {
			n.Add(1)
		}
		return nil
	}
	p.power.tap.Store(&tap)
	return n
}

// TestAKindThatIsNotServedIsAskedForOnceForAllOwners, and for a while, however often they are worked on: all share one question. When it is
// served, they have what they desire.
func TestAKindThatIsNotServedIsAskedForOnceForAllOwners(t *testing.T) {
	t.Parallel()
	const owners, changes = 10, 5
	w := newWorld(t, 1)
	w.mostRetry = time.Minute // the source asks too
	one := w.Members[0]
	r := w.spread()
	r.MoreKinds = func(schema.GroupVersionKind) error { return nil }
	var runs atomic.Int32
	copies := r.Desired
	r.Desired = func(ctx context.Context, owner *corev1.ConfigMap, target dependents.Target) ([]client.Object, error) {
		all, err := copies(ctx, owner, target)
		gadget := w.gadget("v1")
		gadget.SetName(owner.Name)
		if target.RESTMapper != nil {
			runs.Add(1)
			_, _ = target.RESTMapper.RESTMapping(gadget.GroupVersionKind().GroupKind(), "v1")
		}
		return append(all, gadget), err
	}
	p := w.run(r)
	asked := groupsAsked(p, one, w.ns+".example.com")
	for i := range owners {
		w.create(w.Local, w.owner(fmt.Sprint(i), one.Name))
	}
	for n := range changes {
		value := fmt.Sprint("changed-", n)
		for i := range owners {
			w.change(w.Local, fmt.Sprint(i), func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		}
		for i := range owners {
			w.says(one, copyOf(fmt.Sprint(i)), value)
		}
	}
	if n, of := asked.Load(), runs.Load(); of < owners*changes || n > owners*changes/2 {
		t.Errorf("it was asked %d times for a kind that is not served, in %d runs", n, of)
	}
	crd := w.gadgetCRD("v1")
	w.create(one, crd)
	for i := range owners {
		gadget := w.gadget("v1")
		gadget.SetName(fmt.Sprint(i))
		eventually(t, "what needs it is made", func() bool { return w.isThere(one, gadget) })
	}
	for i := range owners {
		w.remove(w.Local, fmt.Sprint(i))
	}
	for i := range owners {
		w.isGone(w.Local, fmt.Sprint(i))
	}
	if err := one.Client().Delete(t.Context(), crd); err != nil {
		t.Error(err)
	}
}

// makingUp notes kinds on an owner that nobody serves, each in an API group of its own, and that something was given up.
func makingUp(owner *corev1.ConfigMap, group string, n int) *corev1.ConfigMap {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("Kind%d.v1.%s%d.madeup.example.com", i, group, i)
	}
	owner.Annotations[controller+"."+fleetName+".fleet-runtime.dev/kinds"] = strings.Join(texts, ",")
	owner.Annotations[controller+"."+fleetName+".fleet-runtime.dev/given-up"] = "true"
	return owner
}

// TestKindsThatSomebodyMakesUpCostAMemberThatLeavesNothing, noted on owners that have nothing there: each costs a request, one after the other.
func TestKindsThatSomebodyMakesUpCostAMemberThatLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	one := w.Members[0]
	r := w.spread()
	r.OnMemberLeaving = dependents.LeaveDeleted
	p := w.runShared("one", r)
	asked := groupsAsked(p, one, ".madeup.example.com")
	for i := range 5 {
		w.create(w.Local, makingUp(w.owner(fmt.Sprint("made-up-", i)), fmt.Sprintf("g%d-", i), 250))
	}
	w.create(w.Local, w.owner("a", one.Name))
	w.isCopied(one, "a")
	settle(t, asked)
	p.leave(one)
	w.isGone(one, copyOf("a"))
	if n := asked.Load(); n > 0 {
		t.Errorf("the member was asked %d times about kinds that nobody serves", n)
	}
}

// TestKindsThatSomebodyMakesUpCostLittle: whoever may write an owner may note on it as many as there is room for, each in an API group of
// its own, and have it looked for them everywhere. Each costs a request or two, and once the cluster was looked at, a change costs none.
func TestKindsThatSomebodyMakesUpCostLittle(t *testing.T) {
	t.Parallel()
	const madeUp = 250
	w := newWorld(t, 1)
	one := w.Members[0]
	var results latest
	r := w.spread()
	r.Status = results.note
	p := w.run(r)
	asked := groupsAsked(p, one, ".madeup.example.com")
	w.create(w.Local, makingUp(w.owner("a", one.Name), "g", madeUp))
	w.isCopied(one, "a")
	eventually(t, "the cluster was looked at", func() bool { return asked.Load() >= madeUp && results.of("a", one).Err == nil })
	mustCost := func(what string, most int32) {
		t.Helper()
		if n := asked.Swap(0); n > most {
			t.Errorf("%s cost %d requests about %d kinds that nobody serves", what, n, madeUp)
		}
	}
	mustCost("the owner", 2*madeUp)
	for _, value := range []string{"2", "3"} {
		w.change(w.Local, "a", func(cm *corev1.ConfigMap) { cm.Data["value"] = value })
		w.says(one, copyOf("a"), value)
	}
	mustCost("two changes", 0)
	w.remove(w.Local, "a")
	w.isGone(w.Local, "a")
	w.isGone(one, copyOf("a"))
	mustCost("its deletion", 2*madeUp)
}
