package fleet

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// TestAPartOfAnAnswerSpeaksForTheServer, and its end does not. An error of an Unreachable member is that it is Unreachable.
func TestAPartOfAnAnswerSpeaksForTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		answer io.Reader
		heard  bool
		err    error
	}{
		"a part":  {strings.NewReader("x"), true, nil},
		"its end": {strings.NewReader(""), false, io.EOF},
		"cut off": {iotest.ErrReader(errNo), false, ErrNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			x := &exchange{begun: time.Now().Add(-time.Minute)}
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://a", nil)
			w := &wire{unreachable: func() *StateError { return &StateError{Err: ErrNotReady, Status: Status{Name: "a"}} }}
			body := &countedBody{ReadCloser: io.NopCloser(c.answer), left: 10, wire: w, req: req, exchange: x}
			_, err := body.Read(make([]byte, 1))
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || c.err == io.EOF && err != io.EOF { //nolint:errorlint // as readers do
				t.Errorf("Read() = %v, want %v", err, c.err)
			}
			if heard := x.arrived.Load() > 0; heard != c.heard {
				t.Errorf("something has arrived: %t, want %t", heard, c.heard)
			}
		})
	}
}

// TestEventsAreSignsOfLife, and the end of a watch is none. An event may be as large as the limit.
func TestEventsAreSignsOfLife(t *testing.T) {
	const event = `{"a":1}`
	for name, c := range map[string]struct {
		answer io.Reader
		most   int64
		heard  bool
		err    error
	}{
		"an event":                {strings.NewReader(event[:5]), 5, true, nil},
		"one that is too large":   {strings.NewReader(event[:5]), 4, true, errTooLarge},
		"the end":                 {strings.NewReader(""), 5, false, io.EOF},
		"an end that is no end":   {iotest.ErrReader(errNo), 5, false, errNo},
		"more than one, and more": {strings.NewReader(event + event + "{"), 1, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHealth(Options{}.withDefaults().Health, &probed{}, nil, nil)
				before := h.sign
				<-time.After(time.Second)
				body := &watchBody{ReadCloser: io.NopCloser(c.answer), health: h, generation: &generation{}, frames: &frames{}, most: c.most}
				if _, err := body.Read(make([]byte, 100)); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("Read() = %v, want %v", err, c.err)
				}
				if heard := h.sign.After(before); heard != c.heard || h.doubt != errors.Is(c.err, errNo) {
					t.Errorf("it is a sign of life: %t, and there is doubt: %t", heard, h.doubt)
				}
			})
		})
	}
}
