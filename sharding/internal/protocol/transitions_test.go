package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// start is a table of four buckets: a owns the first two, of which the second moves to b; b owns the third.
func start(t *testing.T) *Table {
	t.Helper()
	table := joined(t, 4, "a", "b", "c")
	must(t, table.Claim(0, "a"))
	must(t, table.Claim(1, "a"))
	must(t, table.Claim(2, "b"))
	must(t, table.Move(1, "b"))
	return table
}

// show writes a table as its owners, targets and epochs since the start.
func show(table *Table) string {
	var out strings.Builder
	for b, owner := range table.Owner {
		fmt.Fprintf(&out, "%d:%s+%d", b, owner, table.Epoch[b]-1000)
		if to, moving := table.Moving[b]; moving {
			out.WriteString(">" + to)
		}
		out.WriteString(" ")
	}
	for _, m := range table.Sessions {
		out.WriteString(m.Session)
	}
	return out.String()
}

func TestTransitionsThatAreAllowed(t *testing.T) {
	acknowledge := func(b int, by string) func(*Table) error {
		return func(table *Table) error {
			_, err := table.Acknowledge(b, by)
			return err
		}
	}
	cases := map[string]struct {
		do   func(*Table) error
		want string
	}{
		"nothing":                          {func(*Table) error { return nil }, "0:a+1 1:a+1>b 2:b+1 3:+0 abc"},
		"join":                             {func(table *Table) error { return table.Join(Member{Session: "d", Capacity: 2}) }, "0:a+1 1:a+1>b 2:b+1 3:+0 abcd"},
		"claim what nobody owns":           {func(table *Table) error { return table.Claim(3, "c") }, "0:a+1 1:a+1>b 2:b+1 3:c+1 abc"},
		"move":                             {func(table *Table) error { return table.Move(0, "c") }, "0:a+1>c 1:a+1>b 2:b+1 3:+0 abc"},
		"give up what moves":               {acknowledge(1, "a"), "0:a+1 1:b+2 2:b+1 3:+0 abc"},
		"give up what does not":            {acknowledge(0, "a"), "0:+1 1:a+1>b 2:b+1 3:+0 abc"},
		"cancel":                           {func(table *Table) error { return table.Cancel(1) }, "0:a+1 1:a+1 2:b+1 3:+0 abc"},
		"bury an owner":                    {func(table *Table) error { return table.Bury("a") }, "0:+1 1:+1 2:b+1 3:+0 bc"},
		"bury an owner to which one moves": {func(table *Table) error { return table.Bury("b") }, "0:a+1 1:a+1 2:+1 3:+0 ac"},
		"bury one that owns nothing":       {func(table *Table) error { return table.Bury("c") }, "0:a+1 1:a+1>b 2:b+1 3:+0 ab"},
		"leave with nothing":               {func(table *Table) error { return table.Leave("c") }, "0:a+1 1:a+1>b 2:b+1 3:+0 ab"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table := start(t)
			must(t, c.do(table))
			if diff := cmp.Diff(c.want, show(table)); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func TestTransitionsThatAreRefused(t *testing.T) {
	acknowledge := func(b int, by string) func(*Table) error {
		return func(table *Table) error {
			_, err := table.Acknowledge(b, by)
			return err
		}
	}
	long := strings.Repeat("x", 254)
	cases := map[string]struct {
		do   func(*Table) error
		want string
	}{
		"join twice":                  {func(table *Table) error { return table.Join(Member{Session: "a"}) }, `session "a" has joined before`},
		"join without a name":         {func(table *Table) error { return table.Join(Member{}) }, "needs a name"},
		"join with a long name":       {func(table *Table) error { return table.Join(Member{Session: long}) }, "at most 253 bytes"},
		"join with two lines":         {func(table *Table) error { return table.Join(Member{Session: "d\nlevel=error"}) }, "no spaces"},
		"join with a colour":          {func(table *Table) error { return table.Join(Member{Session: "d", Revision: "\x1b[31m"}) }, "no spaces"},
		"join with a long revision":   {func(table *Table) error { return table.Join(Member{Session: "d", Revision: long}) }, "at most 63 bytes"},
		"join with too much capacity": {func(table *Table) error { return table.Join(Member{Session: "d", Capacity: 1001}) }, "between 0 and 1000"},
		"join with negative capacity": {func(table *Table) error { return table.Join(Member{Session: "d", Capacity: -1}) }, "between 0 and 1000"},
		"claim what is owned":         {func(table *Table) error { return table.Claim(0, "b") }, `session "a" owns it`},
		"claim for a stranger":        {func(table *Table) error { return table.Claim(3, "d") }, `session "d": it has not joined`},
		"claim for nobody":            {func(table *Table) error { return table.Claim(3, "") }, "it has not joined"},
		"claim no bucket":             {func(table *Table) error { return table.Claim(4, "a") }, "there is no bucket 4"},
		"claim a negative bucket":     {func(table *Table) error { return table.Claim(-1, "a") }, "there is no bucket -1"},
		"move what nobody owns":       {func(table *Table) error { return table.Move(3, "a") }, "nobody owns it"},
		"move what moves":             {func(table *Table) error { return table.Move(1, "c") }, `it moves to session "b"`},
		"move to the owner":           {func(table *Table) error { return table.Move(0, "a") }, "that owns it"},
		"move to a stranger":          {func(table *Table) error { return table.Move(0, "d") }, "it has not joined"},
		"move no bucket":              {func(table *Table) error { return table.Move(4, "a") }, "there is no bucket 4"},
		"give up another's":           {acknowledge(0, "b"), `session "a" owns it`},
		"give up as who is to own it": {acknowledge(1, "b"), `session "a" owns it`},
		"give up what nobody owns":    {acknowledge(3, ""), "cannot be given up"},
		"give up no bucket":           {acknowledge(4, "a"), "there is no bucket 4"},
		"cancel what does not move":   {func(table *Table) error { return table.Cancel(0) }, "it is not moving"},
		"bury a stranger":             {func(table *Table) error { return table.Bury("d") }, "it is not in the table"},
		"leave as a stranger":         {func(table *Table) error { return table.Leave("d") }, "it is not in the table"},
		"leave with something":        {func(table *Table) error { return table.Leave("a") }, "it owns 2 buckets, such as 0"},
		"join a table that is full": {func(table *Table) error {
			for i := range MaxSessions {
				if err := table.Join(Member{Session: fmt.Sprint("s", i)}); err != nil {
					return err
				}
			}
			return nil
		}, "cannot have more"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table := start(t)
			before := show(table)
			err := c.do(table)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error is %v, want one with %q", err, c.want)
			}
			if diff := cmp.Diff(before, show(table)); diff != "" && !strings.Contains(name, "full") {
				t.Errorf("what was refused has changed the table (-before, +after):\n%s", diff)
			}
		})
	}
}

func TestASessionThatNothingMovesToAnyMoreLosesNothing(t *testing.T) {
	table := start(t)
	if _, err := table.Acknowledge(2, "b"); err != nil {
		t.Fatal(err)
	}
	must(t, table.Leave("b"))
	if to, err := table.Acknowledge(1, "a"); err != nil || to != "" || table.Owner[1] != "" {
		t.Errorf("bucket 1 went to %q, %v; want that nobody owns it, as its target has left", to, err)
	}
}
