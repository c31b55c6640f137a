package members

import (
	"regexp"
	"strings"
	"testing"
)

func TestEachReasonOfAProviderBecomesOneThatConditionsMayHave(t *testing.T) {
	t.Parallel()
	valid := regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`) // as the kind says
	for reason, want := range map[string]string{
		"Refused": "Refused", "is not a word!": "isnotaword", "404NotFound": "NotFound", "_x9": "x9", "ä": "", "7": "",
		strings.Repeat("a", 100): strings.Repeat("a", maxWord),
	} {
		if got := word(reason); got != want || got != "" && !valid.MatchString(got) {
			t.Errorf("%q becomes %q, want %q", reason, got, want)
		}
	}
}
