package demo

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

func TestAPipeGetsALineForEachChange(t *testing.T) {
	out := &bytes.Buffer{}
	p := &plain{out: out, shown: map[fleet.ClusterName]row{}}
	rows := twoRows()
	p.say("It begins.")
	p.show(rows)
	p.show(rows)
	rows[0].objects, rows[0].at = 4, at(9)
	p.show(rows)
	p.settle()
	p.say("It ends.")
	want := `It begins.
15:04:05 member-1 Ready, objects 3, reconciles 12: changed default/greeting
15:04:07 member-22 Unreachable (Refused), objects 120, reconciles 4: is Unreachable: no route to host
15:04:09 member-1 Ready, objects 4, reconciles 12: changed default/greeting
It ends.
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want, +got):\n%s", diff)
	}
}

func TestATerminalShowsTheTableInItsPlace(t *testing.T) {
	out := &bytes.Buffer{}
	term := &terminal{out: out, size: func() (int, int, error) { return 100, 30, nil }}
	rows := twoRows()
	term.say("It begins.")
	term.show(rows)
	rows[0].objects = 4
	term.show(rows)
	term.say("It goes on.")
	term.show(rows[:1])
	term.settle()
	term.say("It ends.")
	want := `It begins.
It goes on.

MEMBER    STATE  OBJECTS  RECONCILES  LAST EVENT
member-1  Ready  4        12          15:04:05 changed default/greeting
It ends.
`
	if diff := cmp.Diff(want, look(t, out.String())); diff != "" {
		t.Errorf("the terminal shows (-want, +got):\n%s", diff)
	}
}

func TestATerminalThatIsTooLowShowsTheTop(t *testing.T) {
	out := &bytes.Buffer{}
	term := &terminal{out: out, size: func() (int, int, error) { return 20, 4, nil }}
	for range 3 {
		term.show(twoRows())
	}
	want := `
MEMBER     STATE  …
member-1   Ready  …
`
	if diff := cmp.Diff(want, look(t, out.String())); diff != "" {
		t.Errorf("the terminal shows (-want, +got):\n%s", diff)
	}
}

func TestATerminalOfUnknownSizeIsTakenForAnOldOne(t *testing.T) {
	out := &bytes.Buffer{}
	term := &terminal{out: out, size: func() (int, int, error) { return 0, 0, errors.New("no terminal") }}
	term.show(twoRows())
	for line := range strings.SplitSeq(look(t, out.String()), "\n") {
		if n := len([]rune(line)); n > 79 {
			t.Errorf("a line has %d characters: %s", n, line)
		}
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, ok := newScreen(file).(*plain); !ok {
		t.Error("a file is taken for a terminal")
	}
}

// look plays what was written to a terminal, and returns what it shows then.
func look(t *testing.T, written string) string {
	t.Helper()
	control := regexp.MustCompile(`\r|\n|\x1b\[(\d*)([A-Z])|[^\r\n\x1b]+`)
	lines, cursor := []string{""}, 0
	for _, match := range control.FindAllStringSubmatch(written, -1) {
		switch {
		case match[0] == "\r":
		case match[0] == "\n":
			if cursor++; cursor == len(lines) {
				lines = append(lines, "")
			}
		case match[2] == "A":
			n, err := strconv.Atoi(match[1])
			if err != nil || n > cursor {
				t.Fatalf("the cursor in line %d was moved up by %q", cursor, match[1])
			}
			cursor -= n
		case match[2] == "J":
			lines = append(lines[:cursor], "")
		case match[2] != "":
			t.Fatalf("unknown control sequence %q", match[0])
		default:
			lines[cursor] = match[0]
		}
	}
	return strings.Join(lines, "\n")
}
