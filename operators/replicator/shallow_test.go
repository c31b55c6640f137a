package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

// depthOf returns how deep maps and lists of JSON are in each other.
func depthOf(t *testing.T, text []byte) (most int) {
	t.Helper()
	depth := 0
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := decoder.Token()
		if err == io.EOF {
			return most
		}
		must(t, err)
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			most = max(most, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// shallowly returns JSON as it is read, in chunks.
func shallowly(t *testing.T, text []byte, chunked func(io.Reader) io.Reader) []byte {
	t.Helper()
	read, err := io.ReadAll(&shallowBody{ReadCloser: io.NopCloser(chunked(bytes.NewReader(text)))})
	must(t, err)
	return read
}

// chunks are ways in which an answer may come.
func chunks() []func(io.Reader) io.Reader {
	return []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader}
}

func FuzzAnswersAreReadShallowly(f *testing.F) {
	for _, leaf := range []string{"1", `"}]"`, `"\\"`, `"\"{"`, `"\u007b[{"`, "{}", "[]", `[{},{"b":[]}]`, `"` + strings.Repeat("{", 2000) + `"`} {
		for _, depth := range []int{1, mostNested - 1, mostNested, mostNested + 1, 9_990} {
			f.Add([]byte(nested(depth, leaf)))
			f.Add([]byte(strings.Repeat("[", depth) + leaf + strings.Repeat(` , 7 ]`, depth) + "\n" + `{"type":"ADDED"}`))
		}
	}
	f.Add([]byte("]}]}{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		want := shallowly(t, text, chunks()[0])
		for i, chunked := range chunks() {
			if read := shallowly(t, text, chunked); !bytes.Equal(read, want) {
				t.Errorf("in chunks of the kind %d, %d bytes are read as %d, not as %d", i, len(text), len(read), len(want))
			}
		}
		if !json.Valid(text) {
			return
		}
		if !json.Valid(want) || depthOf(t, want) > mostNested {
			t.Errorf("%d bytes are read as %d, %d deep", len(text), len(want), depthOf(t, want))
		}
		if depthOf(t, text) < mostNested && !bytes.Equal(want, text) {
			t.Errorf("%q is read as %q", text, want)
		}
	})
}

func TestAnswersThatAreDeepAreReadShallowly(t *testing.T) {
	t.Parallel()
	in := nested(mostNested-2, `[{"cut":[1]},{},2]`)
	want := nested(mostNested-2, `[{},{},2]`)
	for _, chunked := range chunks() {
		for range 2 { // each event of a watch is a document
			in, want := in+"\n"+in, want+"\n"+want
			if read := shallowly(t, []byte(in), chunked); string(read) != want {
				t.Errorf("its end is read as %q", read[len(read)/2:])
			}
		}
	}
}

// TestReadingShallowlyTakesNoMemory, however much is read or cut.
func TestReadingShallowlyTakesNoMemory(t *testing.T) { //nolint:paralleltest // it counts allocations
	text := []byte(nested(1_000_000, `"x"`))
	buffer := make([]byte, 512)
	allocated := testing.AllocsPerRun(1, func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, &shallowBody{ReadCloser: io.NopCloser(bytes.NewReader(text))}, buffer)
		must(t, err)
	})
	if allocated > 10 {
		t.Errorf("there are %.0f allocations", allocated)
	}
}

// answering is a transport that answers the same each time.
type answering struct{ kind, text string }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		Header: http.Header{"Content-Type": {a.kind}, "Content-Length": {"5"}}, ContentLength: int64(len(a.text)), Body: io.NopCloser(strings.NewReader(a.text)),
	}, nil
}

func TestOnlyJSONIsReadShallowly(t *testing.T) {
	t.Parallel()
	deep := nested(2*mostNested, "1")
	for kind, cut := range map[string]bool{
		"application/json": true, "application/json;stream=watch": true, "application/json; charset=utf-8": true,
		"application/vnd.kubernetes.protobuf": false, "text/plain": false, "": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://hub.example", nil)
		must(t, err)
		resp, err := shallow(answering{kind, deep}).RoundTrip(req)
		must(t, err)
		read, err := io.ReadAll(resp.Body)
		must(t, err)
		must(t, resp.Body.Close())
		if cut != (len(read) < len(deep)) || cut != (resp.ContentLength < 0) || cut != (resp.Header.Get("Content-Length") == "") {
			t.Errorf("%s: %d of %d bytes are read, and it says %d", kind, len(read), len(deep), resp.ContentLength)
		}
	}
}
