package fleet

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/internal/redirect"
)

// answering is a transport that has one answer to everything.
type answering struct {
	status       int
	header, body string
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {a.header}, "Location": {a.header}},
		Body: io.NopCloser(bytes.NewReader([]byte(a.body))), Request: req,
	}, nil
}

// FuzzWhatAServerAnswers: whatever that is, an identity and an error are fit to be shown, and short.
func FuzzWhatAServerAnswers(f *testing.F) {
	f.Add(200, "application/json", `{"metadata":{"name":"kube-system","uid":"5f0c"}}`)
	f.Add(200, "text/html", "<html>\x1b[31m")
	f.Add(403, "application/json", `{"kind":"Status","apiVersion":"v1","reason":"Forbidden","message":"\u202eno"}`)
	f.Add(404, "text/plain", "404 page not found")
	f.Add(307, "http://user:secret@elsewhere/path", "")
	f.Add(429, "application/json", `{"kind":"Status","details":{"retryAfterSeconds":2147483647}}`)
	f.Fuzz(func(t *testing.T, status int, header, body string) {
		if status < 200 || status > 599 {
			t.Skip()
		}
		identity, err := identifier(&rest.Config{Host: "https://a"})(t.Context(), redirect.Refuse(answering{status, header, body}))
		if err != nil && identity != "" {
			t.Errorf("the identity %q, and the error %v", identity, err)
		}
		if len(identity) > maxIdentity || identity != oneline.Text(identity, maxIdentity) {
			t.Errorf("the identity is %q", identity)
		}
		if text := message(err); len(text) > maxMessage || text != oneline.Text(text, maxMessage) {
			t.Errorf("the message is %q", text)
		}
		classify(err)
	})
}

// FuzzFrames: events in JSON are measured as a parser divides them, however they arrive.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"a":"}"}{"b":{"c":"\\\""}} {`), 3)
	f.Add([]byte("\n\n{\"type\":\"ADDED\"}\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, step int) {
		if step < 1 || len(stream) > 1<<16 {
			t.Skip()
		}
		var measured frames
		var open int64
		for at := 0; at < len(stream); at += step {
			open = measured.read(stream[at:min(at+step, len(stream))])
		}
		if open > int64(len(stream)) {
			t.Fatalf("%d bytes are open of %d", open, len(stream))
		}
		decoder := json.NewDecoder(bytes.NewReader(stream))
		for {
			var event map[string]json.RawMessage
			if err := decoder.Decode(&event); err == io.EOF {
				break
			} else if err != nil || event == nil {
				t.Skip() // a parser gives up there
			}
		}
		if rest := int64(len(stream)) - decoder.InputOffset(); open != rest && len(bytes.TrimSpace(stream)) > 0 {
			t.Errorf("%d bytes are open, and a parser has not used %d of %q", open, rest, stream)
		}
	})
}
