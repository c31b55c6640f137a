package command_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// completions returns what a shell is offered.
func completions(t *testing.T, r result) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(r.out) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); name != "" && !strings.HasPrefix(name, ":") {
			names = append(names, name)
		}
	}
	if r.code != 0 {
		t.Errorf("%+v", r)
	}
	return names
}

func TestAShellCompletesMembersContextsAndValues(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.addMember(t, "team/north", wellAt("https://north.example.com"))
	a := accessOf("federated", "")
	a.Namespace = "default"
	if err := s.Local.Client().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	none := []string(nil)
	for _, c := range []struct{ args, want []string }{
		{[]string{"describe", "--kubeconfig", s.kubeconfig, ""}, []string{"east", "team/north"}},
		{[]string{"leave", "--kubeconfig", s.kubeconfig, ""}, []string{"east", "team/north"}},
		{[]string{"describe", "--kubeconfig", s.kubeconfig, "east", ""}, none},
		{[]string{"join", "--kubeconfig", s.kubeconfig, ""}, none},
		{[]string{"list", "--kubeconfig", s.kubeconfig, "--context", ""}, []string{"hub", "member"}},
		{[]string{"join", "east", "--member-kubeconfig", s.kubeconfig, "--member-context", ""}, []string{"hub", "member"}},
		{[]string{"leave", "east", "--dependents", ""}, []string{"keep", "prune"}},
		{[]string{"join", "east", "--dry-run", ""}, []string{"none", "client", "server"}},
		{[]string{"list", "-o", ""}, []string{"yaml", "json", "wide", "name"}},
	} {
		if got := completions(t, run(t.Context(), append([]string{"__complete"}, c.args...)...)); !slices.Equal(got, c.want) {
			t.Errorf("after %q it offers %q, want %q", c.args, got, c.want)
		}
	}
}

func TestCompletionOffersTheCommandsAndKnownShells(t *testing.T) {
	t.Parallel()
	offered := completions(t, run(t.Context(), "__complete", ""))
	if !slices.Contains(offered, "describe") || !slices.Contains(offered, "help") || slices.Contains(offered, "no-help") {
		t.Errorf("it offers %q", offered)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t.Context(), "completion", shell); r.code != 0 || !strings.Contains(r.out, "mcctl") {
			t.Errorf("for %s: exit code %d, %.200s", shell, r.code, r.out+r.errOut)
		}
	}
	for _, args := range [][]string{{"completion", "foo"}, {"help", "foo"}} {
		if r := run(t.Context(), args...); r.code != 2 || !strings.Contains(r.errOut, `"foo"`) || r.out != "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
	if r := run(t.Context(), "help", "leave"); r.code != 0 || !strings.Contains(r.out, "Usage:\n  mcctl leave NAME") {
		t.Errorf("help of a command: %+v", r)
	}
}

func TestTheVersionIsThatOfTheRelease(t *testing.T) {
	t.Parallel()
	want := "mcctl v1.2.3 " + runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version() + "\n"
	if r := run(t.Context(), "version"); r.code != 0 || r.out != want {
		t.Errorf("%+v, want %q", r, want)
	}
}

func TestAPluginOfKubectlNamesItsCommandsAsTheyAreTyped(t *testing.T) {
	t.Parallel()
	as := func(args ...string) result { return runAs(t.Context(), "/home/me/.krew/bin/kubectl-mcctl", args...) }
	if r := as("jion"); r.code != 2 || !strings.HasPrefix(r.errOut, "kubectl mcctl: unknown command") || !strings.Contains(r.errOut, "see kubectl mcctl --help") {
		t.Errorf("a wrong command: %+v", r)
	}
	if r := as("shards", "foo"); !strings.Contains(r.errOut, `for "kubectl mcctl shards"`) {
		t.Errorf("a wrong argument: %+v", r)
	}
	if r := as("join", "--help"); !strings.Contains(r.out, "see kubectl mcctl federate") || !strings.Contains(r.out, "\n  kubectl mcctl join east") {
		t.Errorf("help: %+v", r)
	}
	s := newStage(t)
	s.addMember(t, "east", wellAt("https://east.example.com"))
	if r := run(t.Context(), "pause", "east", "--kubeconfig", s.kubeconfig); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := as("describe", "east", "--kubeconfig", s.kubeconfig)
	if !strings.Contains(r.out, "kubectl mcctl describe east --live") || strings.Contains(strings.ReplaceAll(r.out, "kubectl mcctl", ""), "mcctl") {
		t.Errorf("describe: %+v", r)
	}
	if r := as("describe", "west", "--kubeconfig", s.kubeconfig); r.code != 1 || !strings.Contains(r.errOut, "; kubectl mcctl list shows") {
		t.Errorf("an unknown member: %+v", r)
	}
}
