// Package oneline makes text of strangers fit to be shown: what servers answer, and what objects hold, ends up in logs,
// statuses, events and pages.
package oneline

import (
	"regexp"
	"strings"
	"unicode"
)

// token matches a JSON Web Token, as API servers make them, or what is left of one.
var token = regexp.MustCompile(`eyJ[\w-]{16,}(\.[\w-]+)*`)

// hidden is in the place of a token. It is shorter than any.
const hidden = "(hidden token)"

// Text returns text on one line that has no more than most bytes, with "…" at the end if it was cut, which takes three of them. What
// moves a cursor, colours a terminal or turns the direction of writing is left out: control and format characters, and
// bytes that are no UTF-8. Spaces of any kind and number become one space. JSON Web Tokens, and parts with the beginning of one, are hidden:
// servers quote what was sent to them.
func Text(text string, most int) string {
	const mark = "…"
	var out strings.Builder
	space := false
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			space = out.Len() > 0
			continue
		case r == unicode.ReplacementChar, !unicode.IsGraphic(r):
			continue
		}
		if space {
			out.WriteByte(' ')
			space = false
		}
		out.WriteRune(r)
		if out.Len() > most {
			return hide(cut(out.String(), most-len(mark))) + mark
		}
	}
	return hide(out.String())
}

func hide(text string) string { return token.ReplaceAllLiteralString(text, hidden) }

// cut returns the first runes of text that fit into most bytes.
func cut(text string, most int) string {
	end := 0
	for at := range text {
		if at > most {
			break
		}
		end = at
	}
	return text[:end]
}

// Error returns err with a text that is fit to be shown. It is err itself if its text is, and wraps it otherwise.
func Error(err error, most int) error {
	if err == nil {
		return nil
	}
	shown := Text(err.Error(), most)
	if shown == err.Error() {
		return err
	}
	return &shownError{text: shown, err: err}
}

type shownError struct {
	text string
	err  error
}

func (e *shownError) Error() string { return e.text }

// Unwrap returns the error as it was.
func (e *shownError) Unwrap() error { return e.err }
