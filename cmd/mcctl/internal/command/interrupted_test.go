package command_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// mostLines is more than join and leave write.
const mostLines = 50

// interrupter ends a context once so many lines were written.
type interrupter struct {
	bytes.Buffer

	after     int
	interrupt context.CancelFunc
}

func (i *interrupter) Write(line []byte) (int, error) {
	n, err := i.Buffer.Write(line)
	if bytes.Count(i.Bytes(), []byte("\n")) >= i.after {
		i.interrupt()
	}
	return n, err
}

// runAndInterrupt runs mcctl until it has written so many lines of its progress.
func (s *stage) runAndInterrupt(t *testing.T, lines int, args ...string) result {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out bytes.Buffer
	errOut := &interrupter{after: lines, interrupt: interrupt}
	args = append(args, "--kubeconfig", s.kubeconfig, "--member-kubeconfig", s.kubeconfig, "--member-context", "member")
	code := command.Run(ctx, "v1.2.3", append([]string{"/usr/bin/mcctl"}, args...), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: errOut})
	r := result{code: code, out: out.String(), errOut: errOut.String()}
	s.checkSecrecy(t, r)
	return r
}

// newStageWithNamespace has the namespace of the accounts in the member, which would be Terminating for ever: nothing runs there that
// ends namespaces.
func newStageWithNamespace(t *testing.T) *stage {
	t.Helper()
	s := newStage(t)
	if err := s.Members[0].Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: named("fleet-system")}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAJoinThatWasInterruptedAnywhereIsUndoneByLeave(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	for lines := 1; lines <= mostLines; lines++ {
		r := s.runAndInterrupt(t, lines, "join", "east", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host)
		if left := s.run(t, "leave", "east", "--member-context", "member"); left.code != 0 && !strings.Contains(left.errOut, "nothing to undo") {
			t.Fatalf("leave, after %d lines of join: %+v", lines, left)
		}
		s.untouched(t)
		if left := s.madeByMcctl(t); len(left) > 0 {
			t.Fatalf("after %d lines of join, leave leaves %v", lines, left)
		}
		if r.code == 0 {
			if lines < 5 {
				t.Errorf("join was whole after %d lines", lines)
			}
			return
		}
	}
	t.Error("it does not come to an end")
}

func TestAJoinThatWasInterruptedIsGoneOnWithByJoin(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	interrupted := 0
	for lines := 1; lines <= mostLines; lines++ {
		r := s.runAndInterrupt(t, lines, "join", "east", "--rules", rules(t), "--advertise-server", s.Members[0].Config().Host)
		if r.code == 0 {
			break
		}
		interrupted++
	}
	if r := s.run(t, "check", "east", "--rules", rules(t)); r.code != 0 || interrupted < 5 {
		t.Errorf("check, after %d interruptions: %+v", interrupted, r)
	}
}

func TestALeaveThatIsInterruptedIsGoneOnWithByLeave(t *testing.T) {
	t.Parallel()
	s := newStageWithNamespace(t)
	if r := s.join(t); r.code != 0 {
		t.Fatalf("join: %+v", r)
	}
	interrupted := 0
	for s.runAndInterrupt(t, 1, "leave", "east").code != 0 {
		if interrupted++; interrupted > mostLines {
			t.Fatal("it does not come to an end")
		}
	}
	s.untouched(t)
	if left := s.madeByMcctl(t); len(left) > 0 || interrupted < 3 {
		t.Errorf("after %d interruptions, there are %v", interrupted, left)
	}
}
