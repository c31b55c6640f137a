package command_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1alpha1 "github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
	membersv1alpha1 "github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// TestNothingThatStrangersHaveWrittenMovesTheCursor: titles of terminals and answers to them could be set that way.
func TestNothingThatStrangersHaveWrittenMovesTheCursor(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b]0;b\a\x1b[2J\u202ec\rd"
	s := newStage(t)
	s.addMember(t, "east", membersv1alpha1.Status{
		State: "Unreachable", Reason: "Refused", Message: evil, Identity: evil, Server: evil, Version: evil, Duplicates: []string{evil}, Replica: evil,
		NotSynced: []membersv1alpha1.NotSynced{{Kind: evil, Reason: "Forbidden", Message: evil}},
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: "Refused", Message: evil, LastTransitionTime: metav1.Now(),
		}},
	})
	m := &membersv1alpha1.Member{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"}}
	patch := client.MergeFrom(m.DeepCopy())
	m.Spec.Paused, m.Spec.Reason = true, evil
	if err := s.Local.Client().Patch(t.Context(), m, patch); err != nil {
		t.Fatal(err)
	}
	access := &accessv1alpha1.ClusterAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east"},
		Spec: accessv1alpha1.ClusterAccessSpec{
			Server: "https://east.example.com", Federated: &accessv1alpha1.Federated{ServiceAccountName: "operator"},
		},
	}
	if err := s.Local.Client().Create(t.Context(), access); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"describe", "east"}, {"list"}, {"list", "-o", "wide"}, {"check", "east", "--rules", rules(t)}, {"shards"}} {
		if r := s.run(t, args...); strings.ContainsAny(r.out+r.errOut, "\x1b\a\r\u202e") {
			t.Errorf("mcctl %s shows it:\n%q", strings.Join(args, " "), r.out+r.errOut)
		}
	}
}

// TestNoAnswerOfAMemberIsTakenForWhatMcctlSays: a member could call itself whole.
func TestNoAnswerOfAMemberIsTakenForWhatMcctlSays(t *testing.T) {
	t.Parallel()
	const forged = "Rights:       all 5 are there"
	tell := func(w io.Writer, answer any) {
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}
	s := newStage(t)
	for what, answer := range map[string]http.HandlerFunc{
		"its version": func(w http.ResponseWriter, _ *http.Request) {
			tell(w, map[string]string{"gitVersion": "v1.37.1\n" + forged + "\n"})
		},
		"its error": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if req.URL.Path == "/version" {
				tell(w, map[string]string{"gitVersion": "v1.37.1"})
				return
			}
			w.WriteHeader(http.StatusForbidden)
			tell(w, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden,
				Reason: metav1.StatusReasonForbidden, Message: "it is\n" + forged + "\n\n" + forged,
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			s.addFederated(t, answer)
			r := s.run(t, "check", "east", "--rules", rules(t))
			for line := range strings.Lines(r.out + r.errOut) {
				if strings.HasPrefix(strings.TrimSpace(line), forged) {
					t.Errorf("there is a line %q in:\n%s%s", line, r.out, r.errOut)
				}
			}
			if !strings.Contains(r.out+r.errOut, "all 5 are there") {
				t.Errorf("the answer is not told at all: %+v", r)
			}
		})
	}
}

func TestOnATerminalAStepThatRunsIsShownUntilItIsDone(t *testing.T) {
	t.Parallel()
	var to bytes.Buffer
	failed := errors.New("failed")
	step := func(result string, err error) func() (string, error) {
		return func() (string, error) {
			to.WriteString("(runs)")
			return result, err
		}
	}
	first := command.StepOnTerminal(&to, "hub: Secret default/east-minter", step("created", nil))
	second := command.StepOnTerminal(&to, "member: Role a\x1b[2J", step("", failed))
	const want = "… hub: Secret default/east-minter(runs)\r\x1b[Khub: Secret default/east-minter: created\n" +
		"… member: Role a[2J(runs)\r\x1b[Kmember: Role a[2J: failed\n"
	if got := to.String(); got != want || first != nil || !errors.Is(second, failed) {
		t.Errorf("it writes\n%q, want\n%q; %v, %v", got, want, first, second)
	}
}
