package protocol

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
)

// hashes has those of the members from one number to another.
func hashes(from, to int) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i := from; i < to; i++ {
			if !yield(HashMember(fmt.Sprint("m", i), "", "")) {
				return
			}
		}
	}
}

func TestASampleTellsFleetsApartAndKnowsItsOwnWhateverComesAndGoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, to, otherFrom, otherTo int
		least, most                  int // of both, in 16ths
	}{
		"TheSame":        {0, 1000, 0, 1000, 16, 16},
		"OneHasLeft":     {0, 1000, 1, 1000, 15, 16},
		"AFewHaveCome":   {0, 1000, 0, 1010, 14, 16},
		"Others":         {0, 1000, 1000, 2000, 0, 0},
		"HardlyAny":      {0, 1000, 900, 2000, 0, 4},
		"NearlyAll":      {0, 100_000, 2000, 102_000, 13, 16},
		"FewAndMany":     {0, 3, 0, 1000, 0, 2},
		"FewAndTheSame":  {0, 2, 0, 2, 16, 16},
		"FewOfWhichOnes": {0, 2, 1, 2, 8, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := NewSample(hashes(tc.from, tc.to)), NewSample(hashes(tc.otherFrom, tc.otherTo))
			both, of := a.Compare(b)
			if back, ofBack := b.Compare(a); back != both || ofBack != of {
				t.Errorf("%d of %d, and %d of %d the other way", both, of, back, ofBack)
			}
			if share := 16 * both / of; share < tc.least || share > tc.most {
				t.Errorf("%d of %d are in both, want from %d to %d of 16", both, of, tc.least, tc.most)
			}
		})
	}
	if both, of := Sample(nil).Compare(nil); both != 0 || of != 0 {
		t.Errorf("%d of %d of nothing", both, of)
	}
}

func TestASampleDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	all := slices.Collect(hashes(0, 100))
	want := NewSample(slices.Values(all))
	slices.Reverse(all)
	if got := NewSample(slices.Values(append(all, all...))); !slices.Equal(got, want) || len(got) != sampleSize || !slices.IsSorted(got) {
		t.Errorf("%v, want %v", got, want)
	}
	if HashMember("a", "b", "") == HashMember("a", "", "b") || HashMember("a", "a", "") == HashMember("a", "b", "") {
		t.Error("keys and pools do not matter")
	}
}

func TestASampleIsReadAsItWasWrittenAndNothingElseIs(t *testing.T) {
	t.Parallel()
	for _, members := range []int{0, 1, 15, 16, 100} {
		want := NewSample(hashes(0, members))
		text := want.Encode()
		if got, err := DecodeSample(text); err != nil || !slices.Equal(got, want) || len(text) > 86 {
			t.Errorf("of %d members: %v, %v, in %d bytes", members, got, err, len(text))
		}
	}
	for name, text := range map[string]string{
		"TooLong":    strings.Repeat("A", 87),
		"NoBase64":   "(",
		"HalfAHash":  "AAA",
		"Descending": Sample{2, 1}.Encode(),
		"Twice":      Sample{1, 1}.Encode(),
	} {
		if got, err := DecodeSample(text); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}
