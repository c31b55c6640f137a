package objects_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// holdLabel is the label of Secrets that a hold applies to.
const holdLabel = "hold"

// hold lets calls of Members for the Secrets with holdLabel hang until it is released, and heed no context.
type hold struct {
	release func()

	mu        sync.Mutex // guards what follows
	released  chan struct{}
	now, most int // calls that hang
	calls     int
}

func newHold(t *testing.T) *hold {
	t.Helper()
	h := &hold{released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	t.Cleanup(h.release)
	return h
}

func (h *hold) count(more int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += more
	h.most = max(h.most, h.now)
	h.calls += max(more, 0)
}

// waitFor waits until so many calls hang.
func (h *hold) waitFor(t *testing.T, calls int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		most, _ := h.counts()
		return most >= calls, nil
	})
	if err != nil {
		t.Fatalf("waiting until %d calls hang: %v", calls, err)
	}
}

// counts returns how many calls hung at once at most, and how many there were.
func (h *hold) counts() (most, calls int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most, h.calls
}

// members is describe, behind the hold.
func (h *hold) members(ctx context.Context, secret *corev1.Secret, also objects.Reader) ([]fleet.Member, error) {
	if secret.Labels[holdLabel] != "" {
		h.count(1)
		<-h.released
		h.count(-1)
	}
	return describe(ctx, secret, also)
}

func TestASlowObjectHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	p := provider(ns.string)
	p.Members = h.members
	for i := range 10 { // more than are described side by side
		ns.secret(fmt.Sprintf("a-%d", i), map[string]string{fmt.Sprintf("slow-%d", i): "1"}, ours, holdLabel)
	}
	ns.secret("z", map[string]string{"early": "1"}, ours)
	r := start(t, cp.Config(), p)
	r.waitForHosts(t, hosts{"early": "1"})
	later := ns.secret("later", map[string]string{"later": "1"}, ours)
	r.waitForHosts(t, hosts{"early": "1", "later": "1"})
	ns.delete(later)
	r.waitForHosts(t, hosts{"early": "1"})

	h.release()
	r.waitUntil(t, "the members of the slow ones", func() bool { return len(r.members) == 11 })
}

func TestTheOldestObjectTakesItsNameOverWhenItIsSlowAtTheStart(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	p := provider(ns.string)
	p.Members = h.members
	ns.secret("a", map[string]string{"m": "old"}, ours, holdLabel) // of two of the same second, the first by name is the older
	ns.secret("b", map[string]string{"m": "young"}, ours)
	r := start(t, cp.Config(), p)
	r.waitForHosts(t, hosts{"m": "young"})
	h.release()
	r.waitForHosts(t, hosts{"m": "old"})
}

func TestWhatTakesTooLongIsAProblemOfTheObjectAlone(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	p := provider(ns.string)
	p.Members, p.Timeout = h.members, time.Second
	hangs := ns.secret("hangs", map[string]string{"h": "1"}, ours)
	goes := ns.secret("goes", map[string]string{"g": "1"}, ours)
	r := start(t, cp.Config(), p)
	r.waitForHosts(t, hosts{"g": "1", "h": "1"})

	for _, secret := range []*corev1.Secret{hangs, goes} {
		update(ns, secret, func(s *corev1.Secret) { s.Labels[holdLabel] = "true" })
		r.waitForProblem(t, "Secret "+ns.string+"/"+secret.Name, "TooSlow: it takes longer than 1s")
	}
	ns.waitForEvents(hangs, "TooSlow: it takes longer than 1s to find out which members the object describes; they stay as they are")
	r.read(func() {
		if len(r.members) != 2 {
			t.Errorf("members did not stay: %v", r.hosts())
		}
	})
	ns.delete(goes)
	r.waitForHosts(t, hosts{"h": "1"})
	r.waitForProblem(t, "Secret "+ns.string+"/goes")
	update(ns, hangs, func(s *corev1.Secret) { s.Data["h"] = []byte("2") })
	h.release()
	r.waitForHosts(t, hosts{"h": "2"})
	r.waitForProblem(t, "Secret "+ns.string+"/hangs")
	if most, calls := h.counts(); most != 2 || calls < 3 {
		t.Errorf("%d calls hung at once and %d in all, want one for each object, and one more", most, calls)
	}
}

func TestAnObjectThatReplacesOneThatHangsShowsWhyItIsNotDescribed(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	p := provider(ns.string)
	p.Members, p.Timeout = h.members, time.Second
	secret := ns.secret("secret", map[string]string{"m": "1"}, ours, holdLabel)
	r := start(t, cp.Config(), p)
	about := "Secret " + ns.string + "/secret"
	r.waitForProblem(t, about, "TooSlow: ")
	ns.delete(secret)
	r.waitForProblem(t, about)
	ns.secret("secret", map[string]string{"m": "2"}, ours) // not described before the call for the first has returned
	r.waitForProblem(t, about, "TooSlow: ")
	h.release()
	r.waitForHosts(t, hosts{"m": "2"})
	r.waitForProblem(t, about)
}

// TestAnObjectThatReplacesAnotherUnseenIsToldWhatIsWrongWithIt, although the same was wrong with the other: that was deleted
// while it was looked at. What was wrong with the other alone is no problem any more.
func TestAnObjectThatReplacesAnotherUnseenIsToldWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	p := provider(ns.string)
	p.Members, p.Timeout = h.members, patience
	bad, empty := ns.secret("bad", map[string]string{"b": "bad"}, ours), ns.secret("empty", nil, ours)
	r := start(t, cp.Config(), p)
	ns.waitForEvents(bad, "Reasoned: the value is bad")
	about := "Secret " + ns.string + "/empty"
	r.waitForProblem(t, about, "NoMember: ")

	for _, secret := range []*corev1.Secret{bad, empty} {
		update(ns, secret, func(s *corev1.Secret) { s.Labels[holdLabel] = "true" })
	}
	h.waitFor(t, 2)
	ns.delete(bad)
	ns.delete(empty)
	again := ns.secret("bad", map[string]string{"b": "bad"}, ours)
	ns.secret("empty", map[string]string{"e": "1"}, ours)
	ns.secret("last", map[string]string{"l": "1"}, ours)
	r.waitForHosts(t, hosts{"b": "the value is bad", "l": "1"}) // so the watch has told of the others too
	h.release()
	r.waitForHosts(t, hosts{"b": "the value is bad", "e": "1", "l": "1"})
	ns.waitForEvents(again, "Reasoned: the value is bad")
	r.waitForProblem(t, about)
	ns.waitForEvents(bad, "Reasoned: the value is bad")
}

// mostCalls is how many calls of Members there may be at once: those that are waited for, and those that are slow.
const mostCalls = 4 + 32

func TestCallsThatHangAreBounded(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	p := provider(ns.string)
	p.Members, p.Timeout = h.members, time.Second
	want := hosts{}
	for i := range mostCalls + 10 {
		name := fmt.Sprintf("m-%d", i)
		ns.secret(name, map[string]string{name: "1"}, ours, holdLabel)
		want[fleet.ClusterName(name)] = "1"
	}
	r := start(t, cp.Config(), p)
	r.waitForProblem(t, "all objects", "TooSlow: 32 objects take too long to be described, and hold up the others")
	r.waitUntil(t, "as many problems as calls", func() bool { return len(r.problems) == mostCalls+1 })
	h.release()
	r.waitForHosts(t, want)
	r.waitUntil(t, "no problem", func() bool { return len(r.problems) == 0 })
	if most, _ := h.counts(); most != mostCalls {
		t.Errorf("%d calls hung at once, want %d", most, mostCalls)
	}
}

func TestAPanicIsLoggedOnceHoweverOftenItIsTriedAgain(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	ns.secret("secret", map[string]string{"a": "panic"}, ours)
	p := provider(ns.string)
	calls := make(chan struct{}, 1000)
	p.Members = func(ctx context.Context, secret *corev1.Secret, also objects.Reader) ([]fleet.Member, error) {
		calls <- struct{}{}
		return describe(ctx, secret, also)
	}
	messages, r := newMessages(), newRecording()
	stop := startWith(messages.context(t.Context()), t, startLocal(t, cp.Config()), p, r)
	for range 4 {
		select {
		case <-calls:
		case <-time.After(patience):
			t.Fatal("it is not tried again")
		}
	}
	r.waitForProblem(t, "Secret "+ns.string+"/secret", "NotDescribed: the content of the object led to a panic (string)")
	stop()
	lines := messages.all()
	if len(lines) != 1 || !strings.Contains(lines[0], "objects_test.describe") || strings.Contains(lines[0], "the value was") {
		t.Errorf("want one line with the stack and without the content, got:\n%s", strings.Join(lines, "\n"))
	}
}

func TestATroubledObjectIsAProblemUntilItIsMendedOrDeleted(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	p := provider(ns.string)
	p.Members = func(ctx context.Context, secret *corev1.Secret, also objects.Reader) ([]fleet.Member, error) {
		if secret.Labels["broken"] != "" {
			return nil, errors.New("cannot tell what is here")
		}
		return describe(ctx, secret, also)
	}
	empty := ns.secret("empty", nil, ours)
	broken := ns.secret("broken", map[string]string{"b": "1"}, ours, "broken")
	blank := ns.secret("blank", map[string]string{"x": "blank"}, ours)
	bad := ns.secret("bad", map[string]string{"y": "bad"}, ours)
	r := start(t, cp.Config(), p)
	in := "Secret " + ns.string + "/"
	r.waitForProblem(t, in+"empty", "NoMember: no member is described: the Secret is empty")
	r.waitForProblem(t, in+"broken", "NotDescribed: cannot tell what is here")
	r.waitForProblem(t, in+"blank a name with spaces", "InvalidMember: ")
	r.waitForHosts(t, hosts{"y": "the value is bad"}) // which shows what is wrong
	r.waitForProblem(t, in+"bad y")

	update(ns, empty, func(s *corev1.Secret) { s.Data = map[string][]byte{"e": []byte("1")} })
	update(ns, broken, func(s *corev1.Secret) { delete(s.Labels, "broken") })
	ns.delete(blank)
	ns.delete(bad)
	r.waitForHosts(t, hosts{"e": "1", "b": "1"})
	r.waitUntil(t, "no problem", func() bool { return len(r.problems) == 0 })
}
