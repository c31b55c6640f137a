package command_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const (
	page       = "../../../../docs/mcctl.md"
	referenced = "<!-- What follows is written by the tests of cmd/mcctl: set UPDATE_GOLDEN=yes. -->\n"
)

// TestTheReferenceIsWhatHelpSays keeps the end of the page what the commands say of themselves.
func TestTheReferenceIsWhatHelpSays(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(text), referenced)
	if !found {
		t.Fatalf("%s has no line %q", page, referenced)
	}
	var out strings.Builder
	out.WriteString(head + referenced)
	for _, name := range commands(t) {
		help := run(t.Context(), name, "--help").out
		help, _, _ = strings.Cut(help, "\nGlobal Flags:")
		fmt.Fprintf(&out, "\n## mcctl %s\n\n```text\n%s\n```\n", name, strings.TrimSpace(trimLines(help)))
	}
	golden(t, page, out.String())
}

// commands returns those that help lists.
func commands(t *testing.T) []string {
	t.Helper()
	_, list, found := strings.Cut(run(t.Context(), "--help").out, "Available Commands:\n")
	list, _, ended := strings.Cut(list, "\n\n")
	if !found || !ended {
		t.Fatal("help lists no commands")
	}
	var names []string
	for line := range strings.Lines(list) {
		if name := strings.Fields(line)[0]; name != "completion" && name != "help" {
			names = append(names, name)
		}
	}
	return names
}

func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
