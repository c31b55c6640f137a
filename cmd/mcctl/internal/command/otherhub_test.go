package command_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// TestWhatWasMadeForAHubThatIsNoMoreIsRemovedByTheCommandsThatAreNamed: the cluster other is the hub in its place, and no command of mcctl there
// takes what has the mark of the first.
func TestWhatWasMadeForAHubThatIsNoMoreIsRemovedByTheCommandsThatAreNamed(t *testing.T) {
	t.Parallel()
	s := newStageOfThree(t)
	if err := s.Members[0].Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: named("fleet-system")}); err != nil {
		t.Fatal(err)
	}
	const cure = "If that hub is no more, run this in the member:\n  kubectl delete serviceaccount,"
	join := []string{
		"join", "east", "--context", "other", "--member-context", "member", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host,
	}
	leave := []string{"leave", "east", "--context", "other", "--member-context", "member"}
	for _, refused := range [][]string{leave, join} {
		if r := s.join(t); r.code != 0 {
			t.Fatalf("join: %+v", r)
		}
		r := s.run(t, refused...)
		if r.code != 1 || !strings.Contains(r.errOut, cure) {
			t.Errorf("%q: %q is not in %+v", refused, cure, r)
		}
		s.byHand(t, r.errOut)
		if left := s.inMember(t); len(left) > 0 {
			t.Errorf("the commands of %q leave %v", refused, left)
		}
	}
	if r := s.run(t, join...); r.code != 0 {
		t.Fatalf("join of the new hub: %+v", r)
	}
	if r := s.run(t, leave...); r.code != 0 || strings.Contains(r.errOut, "no more") {
		t.Errorf("leave of the new hub: %+v", r)
	}
	if r := s.run(t, leave...); r.code != 1 || strings.Contains(r.errOut, "no more") {
		t.Errorf("leave where nothing is left: %+v", r)
	}
}

// TestALeaveNamesTheCommandsForWhatAHubThatIsNoMoreHasLeft also where the ClusterAccess was applied in the new one.
func TestALeaveNamesTheCommandsForWhatAHubThatIsNoMoreHasLeft(t *testing.T) {
	t.Parallel()
	s := newStageOfThree(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	again := s.access(t)
	again.ResourceVersion, again.UID = "", ""
	if err := s.Members[1].Client().Create(t.Context(), again); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	r := s.run(t, "leave", "east", "--context", "other", "--member-context", "member")
	if r.code != 0 || !strings.Contains(r.errOut, "If that hub is no more, run this in the member:\n") {
		t.Errorf("%+v", r)
	}
	s.byHand(t, r.errOut)
	if left := s.inMember(t); len(left) > 0 {
		t.Errorf("the commands leave %v", left)
	}
}

// TestNoCommandIsMadeOfWhatNoLabelMayBe, which a hostile member may answer with.
func TestNoCommandIsMadeOfWhatNoLabelMayBe(t *testing.T) {
	t.Parallel()
	const hub = "0b9c1f9e-0000-4000-8000-000000000000"
	for name, c := range map[string]struct {
		hub, member string
		commands    int
	}{
		"another hub":       {hub, "east", 2},
		"the hub":           {"this", "east", 0},
		"no hub":            {"", "east", 0},
		"a shell's command": {hub, "east'; touch /tmp/here; '", 0},
		"one as the hub":    {"$(touch /tmp/here)", "east", 0},
	} {
		text := command.OfOtherHubs("this", map[string]string{
			"app.kubernetes.io/managed-by": "mcctl", "access.fleet-runtime.dev/namespace": "default",
			"access.fleet-runtime.dev/member": c.member, "access.fleet-runtime.dev/hub": c.hub,
		})
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !strings.HasPrefix(line, "kubectl ") })
		if len(lines) != c.commands || strings.Contains(text, "touch") {
			t.Errorf("%s: %q, want %d commands", name, text, c.commands)
		}
	}
}
