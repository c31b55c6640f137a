package informer

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// generations of informers of one kind, one for each of two namespaces: those of an engagement, and those of the one that
// takes its place.
type generations struct {
	old, heirs []*Informer
	before, e  *Set
}

func newGenerations(t *testing.T) *generations {
	t.Helper()
	g := &generations{before: &Set{}, e: &Set{}}
	key := Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), form: structuredForm}
	for range 2 {
		g.old = append(g.old, addInformer(t, g.before, key))
	}
	g.e.Inherit(g.before)
	for range 2 {
		g.heirs = append(g.heirs, addInformer(t, g.e, key))
	}
	return g
}

func addInformer(t *testing.T, e *Set, key Key) *Informer {
	t.Helper()
	i, ok := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	if !ok {
		t.Fatal("it is not the fleet's informer")
	}
	e.Add(key, i)
	return i
}

func in(namespace, name string) *corev1.ConfigMap {
	cm := configMap(name, "")
	cm.Namespace = namespace
	return cm
}

// heard returns what handlers were told that are on all of the informers, without the order.
func heard(listeners ...*listener) []string {
	var all []string
	for _, l := range listeners {
		all = append(all, l.all()...)
	}
	slices.Sort(all)
	return all
}

func listenTo(t *testing.T, informers []*Informer) []*listener {
	t.Helper()
	listeners := make([]*listener, len(informers))
	for n, i := range informers {
		listeners[n] = newListener(t, i)
	}
	return listeners
}

// TestWhatWasLostInAReplacementIsTold: to handlers that are added before and after the new informers have their lists,
// each object once, and none that is there in another namespace.
func TestWhatWasLostInAReplacementIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		replace(t, intake{g.old[0]}, "1", in("n1", "stays"), in("n1", "goes"), in("n1", "goes-early"), in("n1", "comes-back"))
		replace(t, intake{g.old[1]}, "1", in("n2", "stays"))
		g.before.KeepLost()
		if err := (intake{g.old[0]}).Delete(in("n1", "goes-early")); err != nil {
			t.Fatal(err)
		}
		if err := (intake{g.old[0]}).Delete(in("n1", "comes-back")); err != nil {
			t.Fatal(err)
		}
		replace(t, intake{g.heirs[0]}, "2", in("n1", "stays"), in("n1", "goes-late"), in("n1", "comes-back"))
		g.e.Open(t.Context())
		early := listenTo(t, g.heirs)
		synctest.Wait()
		if got := heard(early...); slices.Contains(got, "delete of unknown time goes=") {
			t.Errorf("told before all lists are there: %q", got)
		}
		replace(t, intake{g.heirs[1]}, "2", in("n2", "stays"))
		if err := (intake{g.heirs[0]}).Delete(in("n1", "goes-late")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		late := listenTo(t, g.heirs)
		synctest.Wait()
		deletions := func(events []string) []string {
			return slices.DeleteFunc(events, func(e string) bool { return e[0] != 'd' })
		}
		if diff := cmp.Diff([]string{"delete goes-late=", "delete of unknown time goes-early=", "delete of unknown time goes="}, deletions(heard(early...))); diff != "" {
			t.Errorf("deletions that a handler was told that was there before the lists (-want, +got):\n%s", diff)
		}
		want := []string{"delete of unknown time goes-early=", "delete of unknown time goes-late=", "delete of unknown time goes="}
		if diff := cmp.Diff(want, deletions(heard(late...))); diff != "" {
			t.Errorf("deletions that a handler was told that was added afterwards (-want, +got):\n%s", diff)
		}
		<-time.After(legacyLasts)
		synctest.Wait()
		after := listenTo(t, g.heirs)
		synctest.Wait()
		if got := deletions(heard(after...)); len(got) > 0 {
			t.Errorf("told long afterwards: %q", got)
		}
		third := &Set{}
		third.Inherit(g.e)
		heir := addInformer(t, third, Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), form: structuredForm})
		other := addInformer(t, third, Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), form: structuredForm})
		third.Open(t.Context())
		replace(t, intake{heir}, "3", in("n1", "stays"), in("n1", "comes-back"))
		replace(t, intake{other}, "3", in("n2", "stays"))
		next := listenTo(t, []*Informer{heir, other})
		synctest.Wait()
		if got := deletions(heard(next...)); len(got) > 0 {
			t.Errorf("told in the replacement after that, too: %q", got)
		}
		heir.stop()
		other.stop()
		stop(g)
	})
}

// TestWhatWasLostIsToldWhenTheOldEngagementIsOver: until then its own handlers are told what goes.
func TestWhatWasLostIsToldWhenTheOldEngagementIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		replace(t, intake{g.old[0]}, "1", in("n1", "goes"), in("n1", "lacks"))
		replace(t, intake{g.old[1]}, "1")
		g.before.KeepLost()
		replace(t, intake{g.old[0]}, "2", in("n1", "goes")) // its watch had broken off
		replace(t, intake{g.heirs[0]}, "3")
		replace(t, intake{g.heirs[1]}, "3")
		l := listenTo(t, g.heirs)
		synctest.Wait()
		if got := heard(l...); len(got) > 0 {
			t.Errorf("told while the old engagement goes on: %q", got)
		}
		g.e.Open(t.Context())
		synctest.Wait()
		if diff := cmp.Diff([]string{"delete of unknown time goes=", "delete of unknown time lacks="}, heard(l...)); diff != "" {
			t.Errorf("events (-want, +got):\n%s", diff)
		}
		stop(g)
	})
}

// TestNothingIsLostInANamespaceThatHasNoInformerYet: its objects are told as deleted when that has a list without them, also if
// that is late.
func TestNothingIsLostInANamespaceThatHasNoInformerYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		replace(t, intake{g.old[0]}, "1", in("n1", "goes"))
		replace(t, intake{g.old[1]}, "1", in("n2", "goes-too"), in("n2", "stays"))
		e, key := &Set{}, Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), form: structuredForm}
		e.Inherit(g.before)
		heirs := make([]*Informer, 0, 2)
		heirs = append(heirs, addInformer(t, e, key))
		replace(t, intake{heirs[0]}, "2")
		e.Open(t.Context())
		l := listenTo(t, heirs)
		<-time.After(2 * legacyLasts)
		synctest.Wait()
		if got := heard(l...); len(got) > 0 {
			t.Errorf("told before the other namespace has its list: %q", got)
		}
		heirs = append(heirs, addInformer(t, e, key))
		replace(t, intake{heirs[1]}, "2", in("n2", "stays"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"delete of unknown time goes-too=", "delete of unknown time goes="}, heard(l...)); diff != "" {
			t.Errorf("events (-want, +got):\n%s", diff)
		}
		for _, i := range heirs {
			i.stop()
		}
		stop(g)
	})
}

// TestAnObjectThatIsThereAgainIsNotToldAsDeleted to handlers that are added later, however it came back.
func TestAnObjectThatIsThereAgainIsNotToldAsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		heir := g.heirs[0]
		replace(t, intake{heir}, "1", in("n1", "created"), in("n1", "listed"), in("n1", "gone"))
		replace(t, intake{heir}, "2")
		if err := (intake{heir}).Add(in("n1", "created")); err != nil {
			t.Fatal(err)
		}
		replace(t, intake{heir}, "3", in("n1", "created"), in("n1", "listed"))
		l := newListener(t, heir)
		synctest.Wait()
		if diff := cmp.Diff([]string{"add created= initial", "add listed= initial", "delete of unknown time gone="}, heard(l)); diff != "" {
			t.Errorf("events (-want, +got):\n%s", diff)
		}
		stop(g)
	})
}

// TestASetForgetsAKindThatIsRemoved, and leaves nothing of it to the next. A kind with informers of another package leaves nothing
// either.
func TestASetForgetsAKindThatIsRemoved(t *testing.T) {
	e := &Set{}
	key := func(kind string) Key { return Key{corev1.SchemeGroupVersion.WithKind(kind), structuredForm} }
	i := addInformer(t, e, key("ConfigMap"))
	kept := addInformer(t, e, key("Secret"))
	e.Add(key("Pod"), nil)
	if diff := cmp.Diff([]Key{key("ConfigMap"), key("Secret"), key("Pod")}, e.Keys(), cmp.AllowUnexported(Key{})); diff != "" {
		t.Errorf("kinds (-want, +got):\n%s", diff)
	}
	cannot := errors.New("the cache does not forget it")
	if err := e.Forget(key("ConfigMap"), func() error { return cannot }); !errors.Is(err, cannot) || isClosed(i.settled) {
		t.Errorf("the informer has ended although its cache goes on to have it, error %v", err)
	}
	var newer *Informer // somebody gets it once the cache has forgotten the other
	if err := e.Forget(key("ConfigMap"), func() error { newer = addInformer(t, e, key("ConfigMap")); return nil }); err != nil {
		t.Error(err)
	}
	if !isClosed(i.settled) || isClosed(newer.settled) || !slices.Contains(e.of(key("ConfigMap")), newer) {
		t.Error("the informer that was removed goes on, or the one that took its place does not")
	}
	if err := e.Forget(key("ConfigMap"), func() error { return nil }); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]Key{key("Secret"), key("Pod")}, e.Keys(), cmp.AllowUnexported(Key{})); diff != "" {
		t.Errorf("kinds after one was removed (-want, +got):\n%s", diff)
	}
	if !isClosed(i.settled) || isClosed(kept.settled) {
		t.Error("the informer that was removed goes on, or another one does not")
	}
	replace(t, intake{i}, "1", in("x", "a")) // a last answer
	e.KeepLost()
	e.DropLost()
	next := &Set{}
	next.Inherit(e)
	heir := addInformer(t, next, key("ConfigMap"))
	replace(t, intake{heir}, "1")
	next.Open(t.Context())
	if len(heir.lost) > 0 {
		t.Errorf("%v is left of a kind that was removed", heir.lost)
	}
	for _, i := range []*Informer{i, kept, heir} {
		i.stop()
	}
}

// TestAReplacementThatComesToNothingKeepsNothing: informers would keep each object that goes for as long as they last.
func TestAReplacementThatComesToNothingKeepsNothing(t *testing.T) {
	e := &Set{}
	i := addInformer(t, e, Key{})
	replace(t, intake{i}, "1", in("x", "a"))
	e.KeepLost()
	replace(t, intake{i}, "2")
	e.DropLost()
	if len(i.lost) > 0 {
		t.Errorf("it keeps %v for nobody", i.lost)
	}
	i.stop()
}

// TestALegacyThatWasNotSettledIsPassedOn: the engagement in between never had the list.
func TestALegacyThatWasNotSettledIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		replace(t, intake{g.old[0]}, "1", in("n1", "goes"), in("n1", "stays"))
		replace(t, intake{g.old[1]}, "1")
		g.e.Open(t.Context())
		third := &Set{}
		third.Inherit(g.e)
		key := Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), form: structuredForm}
		heirs := []*Informer{addInformer(t, third, key), addInformer(t, third, key)}
		third.Open(t.Context())
		l := listenTo(t, heirs)
		replace(t, intake{heirs[0]}, "2", in("n1", "stays"))
		replace(t, intake{heirs[1]}, "2")
		synctest.Wait()
		if got := heard(l...); !slices.Contains(got, "delete of unknown time goes=") || slices.Contains(got, "delete of unknown time stays=") {
			t.Errorf("told %q", got)
		}
		stop(g)
		for _, i := range heirs {
			i.stop()
		}
	})
}

// TestADeletionThatNobodyWasToldYetIsKept: a handler is busy when the engagement is replaced.
func TestADeletionThatNobodyWasToldYetIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		busy := make(chan struct{})
		if _, err := g.old[0].AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-busy }}); err != nil {
			t.Fatal(err)
		}
		replace(t, intake{g.old[0]}, "1", in("n1", "goes"))
		replace(t, intake{g.old[1]}, "1")
		synctest.Wait()
		if err := (intake{g.old[0]}).Delete(in("n1", "goes")); err != nil {
			t.Fatal(err)
		}
		g.before.KeepLost()
		replace(t, intake{g.heirs[0]}, "2")
		replace(t, intake{g.heirs[1]}, "2")
		g.e.Open(t.Context())
		l := listenTo(t, g.heirs)
		synctest.Wait()
		if diff := cmp.Diff([]string{"delete of unknown time goes="}, heard(l...)); diff != "" {
			t.Errorf("events (-want, +got):\n%s", diff)
		}
		close(busy)
		stop(g)
	})
}

func stop(g *generations) {
	for _, i := range slices.Concat(g.old, g.heirs) {
		i.stop()
	}
}

// TestTheSameVersionWithOtherContentIsNews: a storage that was restored from a backup counts its versions once more.
func TestTheSameVersionWithOtherContentIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Set{}
		i := addInformer(t, e, Key{})
		replace(t, intake{i}, "1", configMap("a", "old"), configMap("b", "same"))
		l := newListener(t, i)
		synctest.Wait()
		replace(t, intake{i}, "1", configMap("a", "new"), configMap("b", "same"))
		synctest.Wait()
		if got := l.all(); len(got) != 3 || got[2] != "update a=old to a=new" {
			t.Errorf("told %q", got)
		}
		i.stop()
	})
}

// TestAnInformerThatIsMadeLaterKeepsNothing: it would keep each object that goes for as long as the engagement lasts.
func TestAnInformerThatIsMadeLaterKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		for _, i := range slices.Concat(g.old, g.heirs) {
			replace(t, intake{i}, "1")
		}
		g.e.Open(t.Context())
		<-time.After(legacyLasts + time.Second)
		synctest.Wait()
		late := addInformer(t, g.e, Key{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), form: structuredForm})
		replace(t, intake{late}, "1", in("x", "a"))
		replace(t, intake{late}, "2")
		if len(late.lost) > 0 {
			t.Errorf("it keeps %v", late.lost)
		}
		stop(g)
	})
}

// TestWhatIsThereAgainIsNotLost: it was created between the look at the store and the news of what was lost.
func TestWhatIsThereAgainIsNotLost(t *testing.T) {
	g := newGenerations(t)
	heir := g.heirs[0]
	replace(t, intake{heir}, "1", in("x", "a"))
	heir.inherit(map[string]any{"x/a": in("x", "a"), "x/b": in("x", "b")})
	stop(g)
	if _, kept := heir.lost["x/a"]; kept || len(heir.lost) != 1 {
		t.Errorf("lost are %v, want x/b", heir.lost)
	}
}

// TestReplacementsThatFollowEachOtherKeepWhatIsLost: one is under way when the minute after the one before is over, and
// one that comes to nothing drops nothing that was lost in the one before.
func TestReplacementsThatFollowEachOtherKeepWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		replace(t, intake{g.old[0]}, "1", in("n1", "goes-first"))
		replace(t, intake{g.old[1]}, "1")
		heir := g.heirs[0]
		replace(t, intake{heir}, "2", in("n1", "goes"))
		replace(t, intake{g.heirs[1]}, "2")
		g.e.Open(t.Context())
		g.e.KeepLost()
		g.e.DropLost()
		if _, kept := heir.lost["n1/goes-first"]; !kept {
			t.Error("handlers that are added soon are not told of what was lost in the replacement")
		}
		g.e.KeepLost()
		if err := (intake{heir}).Delete(in("n1", "goes")); err != nil {
			t.Fatal(err)
		}
		<-time.After(legacyLasts + time.Second)
		synctest.Wait()
		if _, kept := heir.lost["n1/goes"]; !kept {
			t.Error("the next replacement does not learn of what was lost while it was under way")
		}
		g.e.DropLost()
		if len(heir.lost) > 0 {
			t.Errorf("it keeps %v for nobody", heir.lost)
		}
		stop(g)
	})
}

func keyOf(kind string) Key {
	return Key{GVK: corev1.SchemeGroupVersion.WithKind(kind), form: structuredForm}
}

// TestWhatWasLostIsToldOfAKindThatIsNewToTheOldEngagement: somebody begins to watch it while the next engagement is prepared.
func TestWhatWasLostIsToldOfAKindThatIsNewToTheOldEngagement(t *testing.T) {
	for name, listedEarly := range map[string]bool{"its place is taken before": true, "its place is taken afterwards": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGenerations(t)
				g.before.KeepLost()
				old := addInformer(t, g.before, keyOf("Pod"))
				replace(t, intake{old}, "1", in("n1", "goes"), in("n1", "goes-early"), in("n1", "stays"))
				busy := make(chan struct{})
				if _, err := old.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-busy }}); err != nil {
					t.Fatal(err)
				}
				if err := (intake{old}).Delete(in("n1", "goes-early")); err != nil {
					t.Fatal(err)
				}
				var heir *Informer
				if listedEarly {
					heir = addInformer(t, g.e, keyOf("Pod"))
					replace(t, intake{heir}, "2", in("n1", "stays"))
				}
				g.e.Open(t.Context())
				if !listedEarly {
					heir = addInformer(t, g.e, keyOf("Pod"))
					replace(t, intake{heir}, "2", in("n1", "stays"))
				}
				want := []string{"add stays= initial", "delete of unknown time goes-early=", "delete of unknown time goes="}
				for range 2 { // at once, and a moment later
					l := newListener(t, heir)
					synctest.Wait()
					if diff := cmp.Diff(want, heard(l)); diff != "" {
						t.Errorf("events (-want, +got):\n%s", diff)
					}
				}
				close(busy)
				old.stop()
				heir.stop()
				stop(g)
			})
		})
	}
}

// TestAnInformerIsNotRetiredThatKeepsWhatWasLost: a handler that is added soon would never hear of that.
func TestAnInformerIsNotRetiredThatKeepsWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGenerations(t)
		replace(t, intake{g.old[0]}, "1", in("n1", "goes"))
		replace(t, intake{g.old[1]}, "1")
		key := keyOf("ConfigMap")
		if g.e.Retire(key) {
			t.Error("retired before it has taken the place of the one before")
		}
		g.e.Open(t.Context())
		<-time.After(legacyLasts + time.Second)
		if !g.e.Retire(key) {
			t.Error("not retired although nobody needs it, as it cannot be listed")
		}
		g.e.Restore(key)
		if g.heirs[0].IsStopped() || g.heirs[1].IsStopped() {
			t.Error("an informer that could not be removed takes no handlers")
		}
		g.e.KeepLost()
		if g.e.Retire(key) {
			t.Error("retired although the informers that are to take its place have been begun")
		}
		g.e.DropLost()
		if !g.e.Retire(key) {
			t.Error("not retired although nothing takes its place")
		}
		stop(g)
		if g.e.Restore(key); !g.heirs[0].IsStopped() {
			t.Error("an informer that has ended takes handlers")
		}
	})
}

// TestALegacyIsPassedOnByEngagementsWithoutTheKind, which they could not map; and is settled once all that take the place were listed.
func TestALegacyIsPassedOnByEngagementsWithoutTheKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, in("n1", "goes"), in("n1", "stays"), in("n2", "goes"), in("n2", "stays"))
		for range 2 {
			c.begin()
			c.open()
			<-time.After(legacyLasts + time.Second)
		}
		c.begin()
		c.open()
		told := make([]*listener, 0, 2)
		for _, namespace := range []string{"n1", "n2"} {
			heir := c.add()
			told = append(told, newListener(t, heir))
			replace(t, intake{heir}, "2", in(namespace, "stays"))
			synctest.Wait()
		}
		gone := "delete of unknown time goes="
		if diff := cmp.Diff([]string{"add stays= initial", "add stays= initial", gone, gone}, heard(told...)); diff != "" {
			t.Errorf("events (-want, +got):\n%s", diff)
		}
		c.stop()
	})
}

// TestALegacyKeepsNoStoresOfEarlierEngagements, however often a member is connected anew while a namespace cannot be listed.
func TestALegacyKeepsNoStoresOfEarlierEngagements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, in("n1", "stays"), in("n1", "goes"), in("n2", "back"))
		var heirs [2]*Informer
		for range 3 {
			heirs[0], heirs[1] = c.next(in("n1", "stays")), c.add() // without rights
			c.open()
		}
		l := c.now.legacies[c.key]
		if left, _ := l.left(); len(l.before) != len(heirs) || len(left) != 3 {
			t.Errorf("%d stores and %d objects are kept, want those before and three", len(l.before), len(left))
		}
		told := newListener(t, heirs[0])
		replace(t, intake{heirs[1]}, "2", in("n2", "back"))
		synctest.Wait()
		if diff := cmp.Diff([]string{"add stays= initial", "delete of unknown time goes="}, heard(told)); diff != "" {
			t.Errorf("events (-want, +got):\n%s", diff)
		}
		if !l.isSettled() {
			t.Error("it is not settled, although all was listed")
		}
		c.stop()
	})
}

// TestStoresOfEarlierEngagementsAreFreed although nothing is settled, as a namespace cannot be listed.
func TestStoresOfEarlierEngagementsAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := make([]weak.Pointer[Informer], 0, 10)
		c := newChain(t, in("n1", "stays"), in("n2", "back"))
		for range 5 {
			c.stop() // what those that are over have
			for _, i := range c.all {
				stores = append(stores, weak.Make(i))
			}
			c.all = nil
			c.next(in("n1", "stays"))
			c.add()
			c.open()
			<-time.After(legacyLasts + time.Second) // timers keep sets
		}
		runtime.GC()
		freed := slices.IndexFunc(stores, func(p weak.Pointer[Informer]) bool { return p.Value() != nil })
		if before := len(stores) - 2; freed != before {
			t.Errorf("the stores of %d informers are freed, want those of the %d before the last", freed, before)
		}
		runtime.KeepAlive(c)
		c.stop()
	})
}

// TestALegacyIsSettledByTheSecondEngagementWithFewerNamespaces: those that follow would be told of no deletion.
func TestALegacyIsSettledByTheSecondEngagementWithFewerNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(t, in("n1", "stays"), in("n2", "there"))
		for range 2 {
			c.next(in("n1", "stays"))
			c.open()
		}
		if l := c.now.legacies[c.key]; !l.isSettled() {
			t.Errorf("%d stores and %d objects are kept", len(l.before), len(l.former))
		}
		c.stop()
	})
}

// chain is a member that is connected anew again and again.
type chain struct {
	t   *testing.T
	key Key
	now *Set
	end func() // ends the one that is open
	all []*Informer
}

// newChain returns one whose first engagement has these objects, each namespace in an informer of its own.
func newChain(t *testing.T, objs ...*corev1.ConfigMap) *chain {
	t.Helper()
	c := &chain{t: t, key: keyOf("ConfigMap"), now: &Set{}, end: func() {}}
	of := map[string][]any{}
	for _, obj := range objs {
		of[obj.Namespace] = append(of[obj.Namespace], obj)
	}
	for _, objs := range of {
		replace(t, intake{c.add()}, "1", objs...)
	}
	return c
}

// add adds an informer to the engagement that there is now.
func (c *chain) add() *Informer {
	c.t.Helper()
	i := addInformer(c.t, c.now, c.key)
	c.all = append(c.all, i)
	return i
}

// begin begins another engagement, without informers.
func (c *chain) begin() {
	before := c.now
	c.now = &Set{}
	c.now.Inherit(before)
}

// next begins another engagement, with an informer that has these objects.
func (c *chain) next(objs ...any) *Informer {
	c.t.Helper()
	c.begin()
	i := c.add()
	replace(c.t, intake{i}, "1", objs...)
	return i
}

// open ends the engagement before.
func (c *chain) open() {
	c.end()
	ctx, end := context.WithCancel(c.t.Context())
	c.now.Open(ctx)
	c.end = end
}

// stop ends the informers.
func (c *chain) stop() {
	for _, i := range c.all {
		i.stop()
	}
}

// TestASetHasTheKindsThatWereAdded, not those of the one before, nor those that it was only asked about.
func TestASetHasTheKindsThatWereAdded(t *testing.T) {
	t.Parallel()
	before, e := &Set{}, &Set{}
	addInformer(t, before, keyOf("ConfigMap"))
	e.Inherit(before)
	e.Open(t.Context())
	if e.Retire(keyOf("Secret")) || len(e.Keys()) > 0 {
		t.Errorf("a set without informers has %v", e.Keys())
	}
}

// TestSetsThatShareAnObjectAreOfOneCluster, and what is kept is dropped where they do not.
func TestSetsThatShareAnObjectAreOfOneCluster(t *testing.T) {
	withUID := func(name, uid string) *corev1.ConfigMap {
		cm := in("n1", name)
		cm.UID = types.UID(uid)
		return cm
	}
	for name, c := range map[string]struct {
		heir *corev1.ConfigMap
		want bool
	}{
		"the same UID":           {withUID("a", "1"), true},
		"another UID":            {withUID("a", "2"), false},
		"the UID of another":     {withUID("b", "1"), false},
		"an object without UIDs": {withUID("without", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGenerations(t)
				replace(t, intake{g.old[0]}, "1", withUID("a", "1"), withUID("without", ""), withUID("goes", "3"))
				replace(t, intake{g.old[1]}, "1")
				replace(t, intake{g.heirs[0]}, "2")
				replace(t, intake{g.heirs[1]}, "2", c.heir)
				if got := g.e.Shares(g.before); got != c.want {
					t.Errorf("they share an object: %t, want %t", got, c.want)
				}
				g.e.Renounce()
				g.e.Open(t.Context())
				l := listenTo(t, g.heirs)
				synctest.Wait()
				if got := heard(l...); slices.ContainsFunc(got, func(e string) bool { return e[0] == 'd' }) {
					t.Errorf("told %q, want no deletion", got)
				}
				if err := (intake{g.heirs[1]}).Delete(c.heir); err != nil || len(g.heirs[1].lost) > 0 {
					t.Errorf("it keeps %v for nobody, %v", g.heirs[1].lost, err)
				}
				stop(g)
			})
		})
	}
}
