package access

import (
	"bytes"
	"io"
	"net/http"
	"slices"
)

// telltale is how much of the beginning of a token tells that a text has a part of it, in bytes. Less may be in any text.
const telltale = 24

// shows reports whether a text has a part of a token.
func shows(text []byte, token string) bool {
	return len(token) >= telltale && bytes.Contains(text, []byte(token[:telltale]))
}

// hidden is in the place of a token, or of a whole refusal that has a part of one.
const hidden = "(not shown: the token that was sent)"

// hideToken keeps a header, or a refusal, from showing the token with which the request came, as one does that tells all that was sent: both are
// in errors and warnings, and so in logs and in statuses.
func hideToken(resp *http.Response, token string) {
	for name, values := range resp.Header {
		if slices.ContainsFunc(values, func(value string) bool { return shows([]byte(value), token) }) {
			delete(resp.Header, name)
		}
	}
	if resp.StatusCode >= http.StatusMultipleChoices && len(token) >= telltale {
		resp.Body = &refusal{ReadCloser: resp.Body, token: token}
	}
}

// refusal is the body of one.
type refusal struct {
	io.ReadCloser
	token string
	text  io.Reader // nil until it was read
}

// Read implements [io.Reader]. What goes on beyond the size of any refusal is left out.
func (r *refusal) Read(p []byte) (int, error) {
	if r.text == nil {
		text, err := io.ReadAll(io.LimitReader(r.ReadCloser, maxAnswer))
		if err != nil {
			return 0, err
		}
		text = bytes.ReplaceAll(text, []byte(r.token), []byte(hidden))
		if shows(text, r.token) {
			text = []byte(hidden)
		}
		r.text = bytes.NewReader(text)
	}
	return r.text.Read(p)
}
