package oneline_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
)

func TestTextIsFitToBeShown(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"plain":                        {"forbidden: no", "forbidden: no"},
		"lines become one":             {" a\r\n\tb\u2028c ", "a b c"},
		"escape sequences lose theirs": {"\x1b[31mred\x1b]0;title\a", "[31mred]0;title"},
		"direction of writing stays":   {"user\u202etxt.exe\u2066\u200b", "usertxt.exe"},
		"no UTF-8":                     {"a\xff\xfeb", "ab"},
		"other scripts stay":           {"é世界", "é世界"},
		"as long as allowed":           {strings.Repeat("x", 20), strings.Repeat("x", 20)},
		"longer":                       {strings.Repeat("x", 21), strings.Repeat("x", 17) + "…"},
		"longer, at a rune":            {strings.Repeat("世", 10), strings.Repeat("世", 5) + "…"},
		"nothing":                      {"", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := oneline.Text(c.text, 20); got != c.want {
				t.Errorf("Text(%q, 20) = %q, want %q", c.text, got, c.want)
			}
		})
	}
}

// TestTokensAreHidden, whole or in part, also where control characters are between what is shown of one.
func TestTokensAreHidden(t *testing.T) {
	const whole = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJtaW50ZXIifQ.c2lnbmF0dXJl"
	cases := map[string]struct{ text, want string }{
		"whole":       {"you sent Bearer " + whole + ", which is", "you sent Bearer (hidden token), which is"},
		"in part":     {"token " + whole[:30] + " and", "token (hidden token) and"},
		"twice":       {whole + " " + whole, "(hidden token) (hidden token)"},
		"in pieces":   {whole[:10] + "\x00" + whole[10:], "(hidden token)"},
		"in a cut":    {strings.Repeat("x", 160) + " " + whole, strings.Repeat("x", 160) + " (hidden token)…"},
		"none":        {"eyJhbG is no token", "eyJhbG is no token"},
		"and a name":  {"east.example.com/eyJ", "east.example.com/eyJ"},
		"and its end": {whole + ". Then", "(hidden token). Then"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := oneline.Text(c.text, 200); got != c.want {
				t.Errorf("Text(%q, 200) = %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestAnErrorIsFitToBeShownAndTheSame(t *testing.T) {
	plain, odd := errors.New("plain"), errors.New("\x1b[31mred\n") //nolint:revive // a server has chosen it
	if got := oneline.Error(plain, 100); got != plain {            //nolint:errorlint // it is the very same
		t.Errorf("Error(%v) = %v", plain, got)
	}
	if got := oneline.Error(odd, 100); got.Error() != "[31mred" || !errors.Is(got, odd) {
		t.Errorf("Error(%q) = %q, which is %v", odd, got, errors.Unwrap(got))
	}
	if got := oneline.Error(nil, 100); got != nil {
		t.Errorf("Error(nil) = %v", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[0m\u202e b", 5)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 3 || most > 1000 {
			t.Skip()
		}
		got := oneline.Text(text, most)
		notShown := func(r rune) bool { return r != ' ' && (!unicode.IsGraphic(r) || unicode.IsSpace(r)) }
		if len(got) > most || !utf8.ValidString(got) || strings.ContainsFunc(got, notShown) {
			t.Errorf("Text(%q, %d) = %q", text, most, got)
		}
	})
}
