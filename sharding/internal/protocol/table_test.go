package protocol

import (
	"fmt"
	"slices"
	"testing"
)

// joined returns a table that these sessions of one revision have joined.
func joined(tb testing.TB, buckets int, names ...string) *Table {
	tb.Helper()
	table := New(buckets, 1000)
	for _, name := range names {
		must(tb, table.Join(Member{Session: name, Revision: "r1"}))
	}
	return table
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestBucketsOfKeysNeverChange(t *testing.T) {
	for key, want := range map[string]int{"": 409, "member-1": 538, "namespace/member-2": 1007} {
		if got := Bucket(key, 1024); got != want {
			t.Errorf("key %q is in bucket %d, want %d: members would be in other buckets than tables say", key, got, want)
		}
	}
}

func TestKeysAreSpreadEvenlyOverBuckets(t *testing.T) {
	const keys, buckets = 100_000, 64
	count := make([]int, buckets)
	for i := range keys {
		count[Bucket(fmt.Sprint("member-", i), buckets)]++
	}
	if least, most := slices.Min(count), slices.Max(count); least < keys/buckets*9/10 || most > keys/buckets*11/10 {
		t.Errorf("buckets have between %d and %d keys, want about %d", least, most, keys/buckets)
	}
}

func TestACloneSharesNothing(t *testing.T) {
	table := joined(t, 2, "a", "b")
	must(t, table.Claim(0, "a"))
	must(t, table.Move(0, "b"))
	next := table.Next()
	must(t, next.Bury("a"))
	if !table.Has("a") || table.Owner[0] != "a" || table.Moving[0] != "b" || table.Epoch[0] != 1001 || table.Gen != 1000 {
		t.Errorf("the table became %+v after its clone was changed", table)
	}
	if next.Gen != 1001 || !next.Newer(table) || table.Newer(next) || next.Newer(next) || !table.Newer(nil) {
		t.Errorf("gen %d does not follow on gen %d", next.Gen, table.Gen)
	}
}

func TestASessionHoldsWhatItOwnsUntilThatMoves(t *testing.T) {
	table := joined(t, 3, "a", "b")
	for b := range 2 {
		must(t, table.Claim(b, "a"))
	}
	must(t, table.Move(1, "b"))
	for b, want := range []bool{true, false, false} {
		if got := table.Holds("a", b); got != want {
			t.Errorf("a holds bucket %d: %t, want %t", b, got, want)
		}
	}
	if table.Holds("b", 1) || table.Holds("", 2) {
		t.Error("a session holds what it does not own")
	}
	if stays, leaves := table.Due("a", false), table.Due("a", true); !slices.Equal(stays, []int{1}) || !slices.Equal(leaves, []int{0, 1}) {
		t.Errorf("due are %v, and %v if it leaves; want [1] and [0 1]", stays, leaves)
	}
}

func TestTheFirstLiveSessionPlans(t *testing.T) {
	table := joined(t, 1, "a", "b", "c")
	live := func(session string) bool { return session != "a" }
	for session, want := range map[string]int{"a": 0, "b": 0, "c": 1, "stranger": -1} {
		if got := table.Rank(session, live); got != want {
			t.Errorf("rank of %s is %d, want %d", session, got, want)
		}
	}
}

func TestASessionIsBuriedOnlyAfterSilenceAndAFence(t *testing.T) {
	cases := []struct {
		found  bool
		holder string
		silent bool
		want   Verdict
	}{
		{true, "a", false, Wait},
		{true, "a", true, Fence},
		{true, "", false, Wait},
		{true, "", true, Bury},
		{true, "stranger", true, Bury},
		{false, "", false, Wait},
		{false, "a", false, Wait},
		{false, "", true, Bury},
	}
	for _, c := range cases {
		if got := Judge("a", c.found, c.holder, c.silent); got != c.want {
			t.Errorf("found=%t holder=%q silent=%t: verdict %d, want %d", c.found, c.holder, c.silent, got, c.want)
		}
	}
}

func TestATableThatIsRaisedKeepsWhatIsGreaterAndAllElse(t *testing.T) {
	t.Parallel()
	before := New(3, 5)
	before.Gen, before.Owner, before.Epoch = 7, []string{"a", "", "b"}, []int64{5, 20, 9}
	raised := before.AtLeast(10)
	if raised.Gen != 10 || !slices.Equal(raised.Epoch, []int64{10, 20, 10}) || !slices.Equal(raised.Owner, before.Owner) {
		t.Errorf("it is %+v", raised)
	}
	if before.Gen != 7 || !slices.Equal(before.Epoch, []int64{5, 20, 9}) {
		t.Errorf("the one that was raised is %+v now", before)
	}
	if same := before.AtLeast(6); same.Gen != 7 {
		t.Errorf("its Gen is %d, and was 7", same.Gen)
	}
}
