package main

import (
	"io"
	"mime"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// mostNested is how deep maps and lists of an answer may be in each other. It is far more than mostDepth, so that an object of which something was cut
// is refused like any other that is too deep.
const mostNested = 1000

// shallow cuts what is deeper from the answers of an API server. Such a server takes objects of 10,000 levels, as many as Go's decoders do. A list has
// two levels more and an event of a watch one, so one object of a tenant would fail both for all. No option of client-go or controller-runtime changes
// what decodes lists and events, and rules of a CRD do not see fields that it does not name. All that may be so deep comes as JSON: custom resources
// never come in protobuf, nothing here asks for CBOR, and core objects in protobuf have the deep part, who has set which field, as bytes.
//
// It is for the hub, and not for members: what is cut does not count for the bounds of their answers.
//
// What was read is never written back as a whole: patches have what the program has changed.
func shallow(rt http.RoundTripper) http.RoundTripper { return shallowTransport{rt} }

type shallowTransport struct{ inner http.RoundTripper }

var _ utilnet.RoundTripperWrapper = shallowTransport{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t shallowTransport) WrappedRoundTripper() http.RoundTripper { return t.inner }

// RoundTrip implements http.RoundTripper.
func (t shallowTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" { // with any parameters, as those of a watch
		resp.Body = &shallowBody{ReadCloser: resp.Body}
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
	}
	return resp, nil
}

// shallowBody reads JSON, one document or several, in which maps and lists at the depth mostNested are empty. All else is byte for byte the same.
type shallowBody struct {
	io.ReadCloser

	depth             int
	inText, isEscaped bool
}

// Read implements io.Reader.
func (b *shallowBody) Read(p []byte) (int, error) {
	for {
		n, err := b.ReadCloser.Read(p)
		kept := b.cut(p[:n])
		if kept > 0 || n == 0 || err != nil {
			return kept, err
		}
	}
}

// cut moves what is kept of text to its front, and returns how much that is.
func (b *shallowBody) cut(text []byte) (kept int) {
	for _, c := range text {
		before := b.depth
		switch {
		case b.isEscaped:
			b.isEscaped = false
		case b.inText:
			b.isEscaped, b.inText = c == '\\', c != '"'
		case c == '"':
			b.inText = true
		case c == '{', c == '[':
			b.depth++
		case c == '}', c == ']':
			b.depth--
		}
		if min(before, b.depth) < mostNested { // else it is in one that is to be empty
			text[kept] = c
			kept++
		}
	}
	return kept
}
