package objects_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestWhatIsWrongWithAnObjectShowsAsAnEvent(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	for name, tc := range map[string]struct {
		content map[string]string
		members hosts // what is reported nevertheless
		event   string
	}{
		"a member that cannot be described, with a reason": {
			map[string]string{"a": "bad", "b": "1"}, hosts{"a": "the value is bad", "b": "1"}, "Reasoned: the value is bad",
		},
		"a member that cannot be described": {
			map[string]string{"a": "worse"}, hosts{"a": "the value is worse"}, "InvalidMember: the value is worse",
		},
		"an invalid name": {
			map[string]string{"a": "blank", "b": "1"},
			hosts{"b": "1"},
			`InvalidMember: invalid member "a name with spaces": the name has characters that do not print, or spaces`,
		},
		"no member": {
			nil, hosts{}, "NoMember: no member is described: the Secret is empty",
		},
		"an object that cannot be understood": {
			map[string]string{"a": "unknown"}, hosts{}, "NotDescribed: cannot tell what is here",
		},
		"a panic": {
			map[string]string{"a": "panic"}, hosts{}, "NotDescribed: the content of the object led to a panic (string)",
		},
		"one name twice": {
			map[string]string{"a": "twice"},
			hosts{"a": "first"},
			"DuplicateName: the object describes several members of the same name; the first counts",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t, cp)
			broken := ns.secret("broken", tc.content, ours)
			healthy := ns.secret("healthy", map[string]string{"z": "1"}, ours)
			r := start(t, cp.Config(), provider(ns.string))
			tc.members["z"] = "1"
			r.waitForHosts(t, tc.members)
			ns.waitForEvents(broken, tc.event)

			update(ns, healthy, func(s *corev1.Secret) { s.Data["z"] = []byte("2") })
			tc.members["z"] = "2"
			r.waitForHosts(t, tc.members)

			update(ns, broken, func(s *corev1.Secret) { s.Data = map[string][]byte{"a": []byte("good")} })
			r.waitForHosts(t, hosts{"a": "good", "z": "2"})
			ns.waitForEvents(healthy)
		})
	}
}

func TestAnEventComesWithTheTroubleAndNotWithEachUpdate(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "bad", "z": "0"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "the value is bad", "z": "0"})

	want := []string{"Reasoned: the value is bad"}
	for i := range 5 {
		host := fmt.Sprint(i)
		update(ns, secret, func(s *corev1.Secret) { s.Data["z"] = []byte(host) })
		r.waitForHosts(t, hosts{"a": "the value is bad", "z": host})
	}
	update(ns, secret, func(s *corev1.Secret) { s.Data["a"] = []byte("good") })
	r.waitForHosts(t, hosts{"a": "good", "z": "4"})
	ns.waitForEvents(secret, want...)

	update(ns, secret, func(s *corev1.Secret) { s.Data["a"] = []byte("bad") })
	r.waitForHosts(t, hosts{"a": "the value is bad", "z": "4"})
	ns.waitForEvents(secret, append(want, want...)...)
}

func TestUpdatesWithoutMeaningLeaveTheMemberAlone(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	secret := ns.secret("secret", map[string]string{"a": "1"}, ours)
	last := ns.secret("last", map[string]string{"z": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1", "z": "1"})
	var before fleet.Member
	r.read(func() { before = r.members["a"] })

	for i := range 50 {
		update(ns, secret, func(s *corev1.Secret) { s.Annotations = map[string]string{"count": fmt.Sprint(i)} })
	}
	update(ns, last, func(s *corev1.Secret) { s.Data["z"] = []byte("2") })
	r.waitForHosts(t, hosts{"a": "1", "z": "2"})
	r.read(func() {
		after := r.members["a"]
		if r.removals["a"] > 0 || after.Config.Host != before.Config.Host || len(after.Labels) != len(before.Labels) {
			t.Errorf("the member was removed %d times, and is %v after %v", r.removals["a"], after, before)
		}
	})
}

func TestTheOldestObjectHasTheName(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	// "z" is older, although its name comes last.
	older := ns.secret("z", map[string]string{"m": "old", "own": "old"}, ours)
	younger := ns.secret("a", map[string]string{"m": "young", "other": "young"}, ours)
	for younger.CreationTimestamp.Equal(&older.CreationTimestamp) { // seconds are all that the API keeps
		ns.delete(younger)
		younger = ns.secret("a", map[string]string{"m": "young", "other": "young"}, ours)
	}
	event := fmt.Sprintf(`DuplicateName: the member "m" is described by Secret %s/z, which is older`, ns.string)

	r := start(t, cp.Config(), provider(ns.string))
	both := hosts{"m": "old", "own": "old", "other": "young"}
	r.waitForHosts(t, both)
	ns.waitForEvents(younger, event)
	r.read(func() {
		if r.sets["m"] != 1 {
			t.Errorf("the member was reported %d times before the first owner was known", r.sets["m"])
		}
	})

	update(ns, older, func(s *corev1.Secret) { delete(s.Data, "m") })
	r.waitForHosts(t, hosts{"m": "young", "own": "old", "other": "young"})
	r.read(func() {
		if r.removals["m"] != 1 {
			t.Errorf("the first one's member was removed %d times, want once", r.removals["m"])
		}
	})

	update(ns, older, func(s *corev1.Secret) { s.Data["m"] = []byte("old") })
	r.waitForHosts(t, both)
	ns.events(younger, func(events []string) bool { return len(events) == 2 }) // the event again, or counted

	ns.delete(younger)
	r.waitForHosts(t, hosts{"m": "old", "own": "old"})
	r.read(func() {
		if r.removals["own"] > 0 {
			t.Errorf("members of one object alone were removed: %v", r.removals)
		}
	})
	ns.waitForEvents(older)
}

func TestASuccessorThatIsBrokenDoesNotKeepTheMemberOfTheFirst(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	first := ns.secret("a", map[string]string{"m": "1"}, ours)
	second := ns.secret("b", map[string]string{"m": "bad"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"m": "1"})
	ns.delete(first)
	r.waitForHosts(t, hosts{"m": "the value is bad"})
	r.read(func() {
		if r.removals["m"] != 1 {
			t.Errorf("the first one's member was removed %d times, want once", r.removals["m"])
		}
	})
	ns.events(second, func(events []string) bool { return len(events) >= 2 })
}

func TestDiscoveryGoesOnAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	ns.secret("before", map[string]string{"a": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"a": "1"})

	cp.Stop(t)
	r.waitForProblem(t, secretsIn(ns, ours), "Refused: ")
	cp.Restart(t)
	r.waitForProblem(t, secretsIn(ns, ours))
	after := ns.secret("after", map[string]string{"b": "1"}, ours)
	r.waitForHosts(t, hosts{"a": "1", "b": "1"})
	ns.delete(after)
	r.waitForHosts(t, hosts{"a": "1"})
	r.read(func() {
		if r.removals["a"] > 0 {
			t.Error("a member was removed because the server was away")
		}
	})
}

func TestAServerThatIsAwayAtTheStartIsWaitedFor(t *testing.T) {
	t.Parallel()
	cp := pool.Start(t, mctest.Options{}).Local
	ns := newNamespace(t, cp)
	ns.secret("secret", map[string]string{"a": "1"}, ours)
	local := startLocal(t, cp.Config())
	cp.Stop(t)
	r := newRecording()
	t.Cleanup(startWith(t.Context(), t, local, provider(ns.string), r))
	r.waitForProblem(t, secretsIn(ns, ours), "Refused: clusters are not discovered: the local cluster cannot be asked", "connection refused")
	cp.Restart(t)
	r.waitForHosts(t, hosts{"a": "1"})
	r.waitForProblem(t, secretsIn(ns, ours))
}

func TestAProviderIsToldWhichObjectsAreGone(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	p := provider(ns.string)
	gone := make(chan client.ObjectKey, 100)
	p.Gone = func(key client.ObjectKey) { gone <- key }
	member := ns.secret("member", map[string]string{"a": "1"}, ours)
	refused := ns.secret("refused", map[string]string{"x": "blank"}, ours)
	ns.secret("stays", map[string]string{"s": "1"}, ours)
	r := start(t, cp.Config(), p)
	r.waitForHosts(t, hosts{"a": "1", "s": "1"})
	r.waitForProblem(t, "Secret "+ns.string+"/refused a name with spaces", "InvalidMember: ")
	for _, secret := range []*corev1.Secret{member, refused} {
		ns.delete(secret)
		select {
		case key := <-gone:
			if want := client.ObjectKeyFromObject(secret); key != want {
				t.Errorf("told that %s is gone, want %s", key, want)
			}
		case <-time.After(patience):
			t.Fatalf("not told that %s is gone", secret.Name)
		}
	}
}
