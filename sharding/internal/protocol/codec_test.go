package protocol

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// large is a table in which everything is owned, and each owner has changed several times.
func large(tb testing.TB, buckets, replicas int) *Table {
	tb.Helper()
	table := New(buckets, 1_790_000_000_000)
	for i := range replicas {
		must(tb, table.Join(Member{Session: fmt.Sprintf("fleet-manager-7c9f8d6b54-%05d-x7k2p", i), Revision: "7c9f8d6b54", Capacity: 1}))
	}
	for b := range buckets {
		must(tb, table.Claim(b, table.Sessions[b*7919%replicas].Session))
		table.Epoch[b] += int64(b * 31 % 300)
	}
	for b := 0; b < buckets; b += 10 {
		if to := table.Sessions[(b*7919+1)%replicas].Session; to != table.Owner[b] {
			must(tb, table.Move(b, to))
		}
	}
	return table
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	for _, table := range []*Table{New(1, 0), joined(t, 8, "a", "b"), start(t), large(t, 1024, 3), large(t, 1024, 50), large(t, 16384, 200)} {
		text, err := table.Encode()
		must(t, err)
		read, err := Decode(text)
		must(t, err)
		if diff := cmp.Diff(table, read); diff != "" {
			t.Errorf("the table was read differently (-written, +read):\n%s", diff)
		}
	}
}

// A tenth of the buckets moves, and epochs differ by up to 300. Annotations have 256 KiB.
func TestATableIsSmall(t *testing.T) {
	for _, c := range []struct{ buckets, replicas, most int }{{1024, 3, 6 << 10}, {1024, 50, 10 << 10}, {16384, 200, 96 << 10}} {
		text, err := large(t, c.buckets, c.replicas).Encode()
		must(t, err)
		t.Logf("%d buckets, %d replicas: %d bytes", c.buckets, c.replicas, len(text))
		if len(text) > c.most {
			t.Errorf("a table of %d buckets and %d replicas has %d bytes, want at most %d", c.buckets, c.replicas, len(text), c.most)
		}
	}
}

func TestATableThatIsTooLargeIsNotWritten(t *testing.T) {
	table := New(MaxBuckets, 0)
	for i := range MaxSessions {
		must(t, table.Join(Member{Session: fmt.Sprintf("%0253d", i)}))
	}
	if _, err := table.Encode(); err == nil || !strings.Contains(err.Error(), "use fewer buckets, or shorter names") {
		t.Errorf("error is %v", err)
	}
}

func TestATableThatContradictsItselfIsNotWritten(t *testing.T) {
	for name, table := range map[string]*Table{
		"an owner that has not joined":  {Owner: []string{"a"}, Epoch: []int64{0}},
		"a target that has not joined":  {Sessions: []Member{{Session: "a"}}, Owner: []string{"a"}, Epoch: []int64{0}, Moving: map[int]string{0: "b"}},
		"a move of what nobody owns":    {Sessions: []Member{{Session: "a"}}, Owner: []string{""}, Epoch: []int64{0}, Moving: map[int]string{0: "a"}},
		"a move to the owner":           {Sessions: []Member{{Session: "a"}}, Owner: []string{"a"}, Epoch: []int64{0}, Moving: map[int]string{0: "a"}},
		"no bucket":                     {},
		"fewer epochs than buckets":     {Owner: []string{"", ""}, Epoch: []int64{0}},
		"a move of a bucket that is no": {Owner: []string{""}, Epoch: []int64{0}, Moving: map[int]string{7: "a"}},
	} {
		if text, err := table.Encode(); err == nil {
			t.Errorf("%s: written as %s", name, text)
		}
	}
}

func TestTextThatIsNoTableIsRefused(t *testing.T) {
	base := func(bytes ...byte) string { return base64.StdEncoding.EncodeToString(bytes) }
	table := func(change ...string) string {
		fields := map[string]string{
			"v": "1", "hash": `"xxh64"`, "gen": "7", "buckets": "2", "sessions": `[{"s":"a"},{"s":"b"}]`,
			"owner": `"` + base(1, 2) + `"`, "epoch": `"` + base(1, 2) + `"`, "moving": `""`, "base": "0",
		}
		for i := 0; i < len(change); i += 2 {
			fields[change[i]] = change[i+1]
		}
		parts := make([]string, 0, len(fields))
		for name, value := range fields {
			parts = append(parts, fmt.Sprintf("%q:%s", name, value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	if _, err := Decode(table()); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                         "no JSON",
		"[]":                                       "no JSON",
		strings.Repeat(" ", MaxText+1):             "bytes",
		table("v", "2"):                            "version is 2",
		table("hash", `"md5"`):                     `hash is "md5"`,
		table("buckets", "0"):                      "0 buckets",
		table("buckets", "-1"):                     "-1 buckets",
		table("buckets", "16385"):                  "16385 buckets",
		table("gen", "-1"):                         "gen is -1",
		table("gen", "9223372036854775807"):        "gen is",
		table("base", "9223372036854775807"):       "base",
		table("base", "4611686018427387904"):       "epoch of bucket 0: 1 is too large",
		table("sessions", `[{"s":"a"},{"s":"a"}]`): "joined before",
		table("sessions", `[{"s":""}]`):            "needs a name",
		table("sessions", `[{"s":"a","c":-1},{"s":"b"}]`):                "capacity",
		table("sessions", `[`+strings.Repeat("{},", 1000)+`{}]`):         "1001 sessions",
		table("owner", `"`+base(1)+`"`):                                  "owner of bucket 1: no number",
		table("owner", `"`+base(1, 3)+`"`):                               "owner of bucket 1: 3 is too large",
		table("owner", `"`+base(1, 2, 0)+`"`):                            "1 bytes too many of owners",
		table("owner", `"?"`):                                            "no JSON",
		table("epoch", `"`+base(1)+`"`):                                  "epoch of bucket 1",
		table("epoch", `"`+base(1, 2, 3)+`"`):                            "too many of epochs",
		table("moving", `"`+base(2, 0)+`"`):                              "moves after bucket 0: 2 is too large",
		table("moving", `"`+base(1)+`"`):                                 "no number",
		table("moving", `"`+base(0, 0)+`"`):                              "that owns it",
		table("moving", `"`+base(0, 2)+`"`):                              "2 is too large",
		table("moving", `"`+base(0, 1, 0, 1)+`"`):                        "it moves to session",
		table("owner", `"`+base(0, 2)+`"`, "moving", `"`+base(0, 1)+`"`): "nobody owns it",
	} {
		if _, err := Decode(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: error is %v, want one with %q", text, err, want)
		}
	}
}

// FuzzDecode looks for text that costs too much, or that is read as a table that cannot be written.
func FuzzDecode(f *testing.F) {
	for _, table := range []*Table{New(1, 0), joined(f, 8, "a", "b"), large(f, 64, 3)} {
		text, err := table.Encode()
		must(f, err)
		f.Add(text)
	}
	f.Add(`{"v":1,"hash":"xxh64","gen":1,"buckets":2,"sessions":[{"s":"a"}],"owner":"AQA=","epoch":"AAA="}`)
	f.Fuzz(func(t *testing.T, text string) {
		table, err := Decode(text)
		if err != nil {
			return
		}
		again, err := table.Encode()
		must(t, err)
		read, err := Decode(again)
		must(t, err)
		if diff := cmp.Diff(table, read); diff != "" {
			t.Fatalf("read differently (-written, +read):\n%s", diff)
		}
		in := Input{}
		for i, m := range table.Sessions {
			in.Replicas = append(in.Replicas, Replica{Session: m.Session, Draining: i%3 == 2})
		}
		Plan(table, in)
	})
}
