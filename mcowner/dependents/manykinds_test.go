package dependents

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// numberedKinds returns so many kinds.
func numberedKinds(n int) []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, n)
	for i := range kinds {
		kinds[i] = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprintf("Kind%03d", i)}
	}
	return kinds
}

// allocated returns how many megabytes something takes in passing.
func allocated(do func()) uint64 {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	do()
	goruntime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// TestWhatAnOwnerNeedsCostsLittle, whatever somebody notes on it: as many clusters as there is room for, and for each as many kinds.
func TestWhatAnOwnerNeedsCostsLittle(t *testing.T) {
	r := record.Record{Kinds: numberedKinds(record.MostKinds), Sites: []record.Site{{Name: "member"}}}
	for i := range 20_000 {
		r.Sites = append(r.Sites, record.Site{Name: mcreconcile.ClusterName(fmt.Sprint(i))})
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	testKeys.Write(owner, r, true)
	c := &engine{ledger: newLedger()}
	c.ledger.replan(c.ledger.of(mcreconcile.Request{}, "1"), &plan{owner: owner, ref: mcowner.Reference{UID: "1"}}, testKeys)
	other := watchKey{"member", schema.GroupVersionKind{Version: "v1", Kind: "Pod"}}
	left := map[watchKey]watched{{"member", r.Kinds[0]}: {}, other: {}}
	if megabytes := allocated(func() { c.needless(left) }); megabytes > 50 {
		t.Errorf("it took %d MB", megabytes)
	}
	if _, is := left[other]; !is || len(left) != 1 {
		t.Errorf("needless are %v, want %v alone", left, other)
	}
}

// TestAKindIsNeededInTheVersionThatIsServed, and in that of Kinds, which may be served again.
func TestAKindIsNeededInTheVersionThatIsServed(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "example.com", Kind: "Gadget"}
	c := &engine{kinds: []remote.Kind{remote.Untyped(kind.WithVersion("v1"))}}
	left := map[watchKey]watched{{"member", kind.WithVersion("v1")}: {}, {"member", kind.WithVersion("v2")}: {}, {"member", kind.WithVersion("v3")}: {}}
	c.needlessIn("member", []schema.GroupVersionKind{kind.WithVersion("v2")}, left)
	if _, is := left[watchKey{"member", kind.WithVersion("v3")}]; !is || len(left) != 1 {
		t.Errorf("needless are %v, want v3 alone", left)
	}
}

// TestTheKindsOfManyOwnersAreSweptInTurn: somebody may note on each as many as an owner can note, and each costs a list in each cluster. One that is
// watched somewhere is no such kind: each sweep has it, once.
func TestTheKindsOfManyOwnersAreSweptInTurn(t *testing.T) {
	t.Parallel()
	const owners = 30
	fixed := schema.GroupVersionKind{Version: "v1", Kind: "Fixed"}
	c := &engine{ledger: newLedger(), watches: newWatches("", "", nil, nil), kinds: []remote.Kind{remote.Untyped(fixed)}}
	all := numberedKinds(owners * record.MostKinds)
	for i := range owners {
		kinds := slices.Clone(all[i*record.MostKinds : (i+1)*record.MostKinds])
		owner := ownerWith(record.Record{Sites: []record.Site{{Name: "a"}}, Kinds: kinds}, true)
		req := mcreconcile.Request{ClusterName: mcreconcile.ClusterName(fmt.Sprint(i))}
		c.ledger.replan(c.ledger.of(req, "1"), &plan{owner: owner, ref: mcowner.Reference{UID: "1"}}, testKeys)
	}
	c.watches.wanted[watchKey{"a", all[0]}] = &watched{}
	c.watches.wanted[watchKey{"b", all[0]}] = &watched{}
	c.watches.wanted[watchKey{"a", all[1]}] = &watched{unwatch: true}
	c.watches.wanted[watchKey{"a", fixed}] = &watched{}
	var last schema.GroupVersionKind
	swept := map[schema.GroupVersionKind]int{}
	for range owners {
		always, inTurn := c.moreKindsAfter(last)
		if !slices.Equal(always, all[:1]) || len(inTurn) != record.MostKinds {
			t.Fatalf("each sweep has %v, and one %d others, want %v and %d", always, len(inTurn), all[0], record.MostKinds)
		}
		for _, kind := range inTurn {
			swept[kind]++
		}
		last = inTurn[len(inTurn)-1]
	}
	if swept[all[0]] > 0 || len(swept) != len(all)-1 {
		t.Errorf("%d kinds of %d had their turn, and the one that each sweep has %d times", len(swept), len(all)-1, swept[all[0]])
	}
}

// TestFewKindsThatAreNotedAreSweptEachTime, each in one version.
func TestFewKindsThatAreNotedAreSweptEachTime(t *testing.T) {
	t.Parallel()
	c := &engine{ledger: newLedger(), watches: newWatches("", "", nil, nil)}
	kinds := numberedKinds(3)
	another := kinds[0]
	another.Version = "v2"
	owner := ownerWith(record.Record{Sites: []record.Site{{Name: "a"}}, Kinds: append(kinds, another)}, true)
	c.ledger.replan(c.ledger.of(mcreconcile.Request{}, "1"), &plan{owner: owner, ref: mcowner.Reference{UID: "1"}}, testKeys)
	for _, last := range append(kinds, another, schema.GroupVersionKind{}) {
		always, inTurn := c.moreKindsAfter(last)
		slices.SortFunc(inTurn, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.Kind, b.Kind) })
		if len(always) > 0 || !slices.Equal(inTurn, kinds[:3]) {
			t.Errorf("after %v, each sweep has %v, and one %v, want none and %v", last, always, inTurn, kinds)
		}
	}
}

// TestAnOwnerWithTooManyKindsIsTold, and nothing is done for it: there may be dependents of kinds that are not read.
func TestAnOwnerWithTooManyKindsIsTold(t *testing.T) {
	t.Parallel()
	a := newAccounting(t, config{}, &plan{}, "a")
	texts := make([]string, record.MostKinds+1)
	for i := range texts {
		texts[i] = fmt.Sprintf("Kind%d.v1.example.com", i)
	}
	a.o.plan.owner.GetAnnotations()[testKeys.Kinds] = strings.Join(texts, ",")
	hub := a.hears(t)
	for range 2 {
		_, err := a.engine.account(t.Context(), a.o, remote.Session{Cluster: hub})
		if err == nil || !strings.Contains(err.Error(), testKeys.Kinds) {
			t.Errorf("the account ended with %v", err)
		}
	}
	if !slices.Equal(hub.reasons, []string{EventFailed}) || hub.owner.ResourceVersion != "1" || len(a.engine.works.early) > 0 {
		t.Errorf("the events are %q, the owner is of version %s, and %d are worked on", hub.reasons, hub.owner.ResourceVersion, len(a.engine.works.early))
	}
}

// TestNoMoreKindsAreNotedThanAreRead: what is of another one is refused, as nothing may be created of a kind that is not noted.
func TestNoMoreKindsAreNotedThanAreRead(t *testing.T) {
	t.Parallel()
	all := numberedKinds(record.MostKinds + 1)
	a := newAccounting(t, config{}, &plan{}, "a")
	v, _ := a.o.begin("a")
	a.o.report("a", v, report{kinds: all, again: true})
	a.mustOpen(t)
	if n := len(a.record.Kinds); n != record.MostKinds {
		t.Errorf("%d kinds are to be stored, want %d", n, record.MostKinds)
	}
	wants := func() []wanted {
		return []wanted{{kind: remote.Untyped(all[0]), obj: &corev1.ConfigMap{}}, {kind: remote.Untyped(all[record.MostKinds]), obj: &corev1.ConfigMap{}}}
	}
	full := &placement{asked: view{noted: all[:record.MostKinds]}}
	refused := wants()
	if more := full.kindsToNote(refused); len(more) > 0 || refused[0].err != nil || refused[1].err == nil {
		t.Errorf("%v are to be noted, what is noted has the error %v, and what is not %v", more, refused[0].err, refused[1].err)
	}
	room := &placement{asked: view{noted: all[1:record.MostKinds]}}
	last := wants()
	if more := room.kindsToNote(last); !slices.Equal(more, []schema.GroupVersionKind{all[0], all[record.MostKinds]}) || last[1].err != nil {
		t.Errorf("%v are to be noted, and there is the error %v", more, last[1].err)
	}
}
