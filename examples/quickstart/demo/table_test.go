package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a moment of the day that tests are about.
func at(second int) time.Time { return time.Date(2026, 1, 2, 15, 4, second, 0, time.UTC) }

func twoRows() []row {
	return []row{
		{name: "member-1", state: "Ready", objects: 3, reconciles: 12, event: "changed default/greeting", at: at(5)},
		{name: "member-22", state: "Unreachable (Refused)", objects: 120, reconciles: 4, event: "is Unreachable: no route to host", at: at(7)},
	}
}

func TestTableAlignsItsColumns(t *testing.T) {
	want := `
MEMBER     STATE                  OBJECTS  RECONCILES  LAST EVENT
member-1   Ready                  3        12          15:04:05 changed default/greeting
member-22  Unreachable (Refused)  120      4           15:04:07 is Unreachable: no route to host
`
	if diff := cmp.Diff(want, "\n"+strings.Join(table(twoRows(), 120), "\n")+"\n"); diff != "" {
		t.Errorf("table (-want, +got):\n%s", diff)
	}
}

func TestTableShowsWhichReplicaWorksOnAMember(t *testing.T) {
	rows := twoRows()
	rows[1].owner = "replica-1"
	want := `
MEMBER     REPLICA    STATE                  OBJECTS  RECONCILES  LAST EVENT
member-1              Ready                  3        12          15:04:05 changed default/greeting
member-22  replica-1  Unreachable (Refused)  120      4           15:04:07 is Unreachable: no route to host
`
	if diff := cmp.Diff(want, "\n"+strings.Join(table(rows, 120), "\n")+"\n"); diff != "" {
		t.Errorf("table (-want, +got):\n%s", diff)
	}
}

func TestTableIsCutToTheWidthOfTheTerminal(t *testing.T) {
	want := `
MEMBER     STATE                  OBJECTS  RECONCILES  LAST EVENT
member-1   Ready                  3        12          15:04:05 chan…
member-22  Unreachable (Refused)  120      4           15:04:07 is U…
`
	if diff := cmp.Diff(want, "\n"+strings.Join(table(twoRows(), 69), "\n")+"\n"); diff != "" {
		t.Errorf("table (-want, +got):\n%s", diff)
	}
}

func TestTableWithoutMembersIsEmpty(t *testing.T) {
	if lines := table(nil, 80); len(lines) > 0 {
		t.Errorf("table() = %q, want nothing", lines)
	}
}

func TestCutCountsCharacters(t *testing.T) {
	for _, test := range []struct {
		line  string
		width int
		want  string
	}{
		{"as it is", 8, "as it is"},
		{"one too many", 11, "one too ma…"},
		{"größer", 6, "größer"},
		{"weiß es", 5, "weiß…"},
		{"blanks   ", 6, "blanks"},
		{"any", 0, "…"},
	} {
		if got := cut(test.line, test.width); got != test.want {
			t.Errorf("cut(%q, %d) = %q, want %q", test.line, test.width, got, test.want)
		}
	}
}
