package objects_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// recreate deletes a Secret and returns one with the same name that was created in a later second.
func (n namespace) recreate(secret *corev1.Secret, members map[string]string, created func(again *corev1.Secret)) {
	n.t.Helper()
	for before := secret.CreationTimestamp; ; {
		n.delete(secret)
		created(nil)
		secret = n.secret(secret.Name, members, ours)
		if !before.Equal(&secret.CreationTimestamp) { // seconds are all that the API keeps
			created(secret)
			return
		}
	}
}

func TestAnObjectThatIsReplacedKeepsItsNameAgainstADuplicate(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	tools := ns.secret("z", map[string]string{"m": "first"}, ours)
	duplicate := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.string, Name: "zz", Labels: map[string]string{ours: "true"}}}
	duplicate.StringData = map[string]string{"m": "duplicate"}
	ns.put(duplicate)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"m": "first"})
	about := "Secret " + ns.string + "/zz m"
	r.waitForProblem(t, about, fmt.Sprintf(`DuplicateName: the member "m" is described by Secret %s/z, which is older`, ns.string))

	ns.recreate(tools, map[string]string{"m": "again"}, func(again *corev1.Secret) {
		if again == nil {
			r.waitForHosts(t, hosts{}) // the member leaves at once
		}
	})
	r.waitForHosts(t, hosts{"m": "again"})
	newcomer := ns.secret("other", map[string]string{"o": "1"}, ours)
	r.waitForHosts(t, hosts{"m": "again", "o": "1"})
	r.read(func() {
		if slices.Contains(r.hostsOf["m"], "duplicate") {
			t.Errorf("the duplicate had the name meanwhile: %q", r.hostsOf["m"])
		}
	})
	ns.delete(newcomer)
	ns.delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.string, Name: "z"}})
	r.waitForHosts(t, hosts{"m": "duplicate"}) // when nothing has replaced it for a while
	r.waitForProblem(t, about)
}

func TestANameIsKeptAlsoAgainstANewcomer(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	first := ns.secret("first", map[string]string{"m": "1"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"m": "1"})
	ns.delete(first)
	r.waitForHosts(t, hosts{})
	newcomer := ns.secret("newcomer", map[string]string{"m": "2"}, ours)
	message := fmt.Sprintf(`DuplicateName: the name "m" is kept for Secret %s/first for a moment, which was deleted`, ns.string)
	r.waitForProblem(t, "Secret "+ns.string+"/newcomer m", message)
	ns.waitForEvents(newcomer, message)
	r.waitForHosts(t, hosts{"m": "2"})
	r.waitForProblem(t, "Secret "+ns.string+"/newcomer m")
}

func TestASecondProblemOfAnObjectShowsBesideTheFirst(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	older := ns.secret("a", map[string]string{"x": "1", "y": "1", "z": "1"}, ours)
	younger := ns.secret("b", map[string]string{"x": "2", "y": "2", "z": "2"}, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitForHosts(t, hosts{"x": "1", "y": "1", "z": "1"})
	names := []string{"x", "y", "z"}
	want := make([]string, 0, len(names))
	for _, name := range names {
		message := fmt.Sprintf("DuplicateName: the member %q is described by Secret %s/a, which is older", name, ns.string)
		want = append(want, message)
		r.waitForProblem(t, "Secret "+ns.string+"/b "+name, message)
	}
	ns.waitForEvents(younger, want...)
	ns.waitForEvents(older)
}

func TestEventsOfOneObjectAreLimitedAndProblemsAreNot(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns := newNamespace(t, cp)
	members := map[string]string{}
	for i := range 60 {
		members[fmt.Sprintf("m-%02d", i)] = "1"
	}
	ns.secret("a", members, ours)
	younger := ns.secret("b", members, ours)
	r := start(t, cp.Config(), provider(ns.string))
	r.waitUntil(t, "a problem for each name", func() bool { return len(r.problems) == len(members) })
	ns.waitForEvents(ns.secret("last", nil, ours), "NoMember: no member is described: the Secret is empty")
	got := ns.events(younger, func(events []string) bool { return len(events) >= 20 })
	if len(got) > 30 {
		t.Errorf("there are %d events", len(got))
	}
}

func TestAnObjectDescribesNoMoreMembersThanOneMay(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	for name, tc := range map[string]struct{ limit, want int }{
		"by default": {0, 100}, "by choice": {3, 3}, "without a limit": {-1, 150},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t, cp)
			members, first := map[string]string{}, hosts{}
			for i := range 150 {
				name := fmt.Sprintf("m-%03d", i)
				members[name] = "1"
				if i < tc.want {
					first[fleet.ClusterName(name)] = "1"
				}
			}
			large := ns.secret("large", members, ours)
			p := provider(ns.string)
			p.MaxMembers = tc.limit
			r := start(t, cp.Config(), p)
			r.waitForHosts(t, first)
			if tc.want == 150 {
				r.waitForProblem(t, "Secret "+ns.string+"/large")
				return
			}
			message := fmt.Sprintf("TooManyMembers: %d members are left out, the last by name: an object may describe %d", 150-tc.want, tc.want)
			r.waitForProblem(t, "Secret "+ns.string+"/large", message)
			ns.waitForEvents(large, message)
			update(ns, large, func(s *corev1.Secret) {
				for i := range tc.want {
					delete(s.Data, fmt.Sprintf("m-%03d", i))
				}
			})
			r.waitUntil(t, "the others", func() bool { return r.members["m-149"].Config != nil || tc.want < 75 })
		})
	}
}

// TestAHundredAtOnce: what some of several hundred objects do changes nothing for the others, which are all there before
// those that hang are given up.
func TestAHundredAtOnce(t *testing.T) {
	t.Parallel()
	cp := pool.Share(t, mctest.Options{})
	ns, h := newNamespace(t, cp), newHold(t)
	huge := map[string]string{}
	for i := range 5000 {
		huge[fmt.Sprintf("huge-%04d", i)] = "1"
	}
	want := hosts{}
	for i := range 300 {
		name := fmt.Sprintf("%03d", i)
		switch {
		case i%30 == 0:
			ns.secret(name+"-hangs", map[string]string{"hangs-" + name: "1"}, ours, holdLabel)
		case i%30 == 1:
			ns.secret(name+"-panics", map[string]string{name: "panic"}, ours)
		case i%30 == 2:
			ns.secret(name+"-steals", map[string]string{"m-003": "stolen", "m-" + name: "1"}, ours)
			want[fleet.ClusterName("m-"+name)] = "1"
		case i%100 == 50:
			ns.secret(name+"-huge", huge, ours)
		default:
			ns.secret(name, map[string]string{"m-" + name: "1"}, ours)
			want[fleet.ClusterName("m-"+name)] = "1"
		}
	}
	// The first to have the name is whichever is the oldest, and the rest of these lose it.
	want["m-003"] = "stolen"
	p := provider(ns.string)
	p.Members, p.Timeout = h.members, patience
	r := start(t, cp.Config(), p)
	r.waitUntil(t, "the members of all that are healthy", func() bool {
		for name, host := range want {
			if m, ok := r.members[name]; !ok || m.Config.Host != host {
				return false
			}
		}
		return true
	})
	r.read(func() {
		for name := range r.members {
			if _, ok := want[name]; !ok && !strings.HasPrefix(string(name), "huge-0") {
				t.Errorf("%q is a member", name)
			}
		}
		for name := range want {
			if r.sets[name] != 1 || r.removals[name] > 0 {
				t.Errorf("%q was reported %d times and removed %d times", name, r.sets[name], r.removals[name])
			}
		}
	})
	r.waitUntil(t, "a problem of each hostile one but those that still hang", func() bool {
		count := map[string]int{}
		for about := range r.problems {
			for _, what := range []string{"-panics", "-huge", " m-003"} {
				if strings.HasSuffix(about, what) {
					count[what]++
				}
			}
		}
		return count["-panics"] == 10 && count["-huge"] == 2 && count[" m-003"] == 10
	})
	if most, _ := h.counts(); most != 10 {
		t.Errorf("%d calls hang, want 10", most)
	}
}
