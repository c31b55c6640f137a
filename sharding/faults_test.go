package sharding

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// faults stand between one replica and the API server.
type faults struct {
	mu      sync.Mutex // guards what follows
	verdict func(*http.Request) fault
	freed   chan struct{} // nil, or closed when frozen requests and watches go on
	writes  int           // that were answered with success
}

// fault is what happens to a request.
type fault int

const (
	pass    fault = iota
	refuse        // it fails at once, and is not sent
	freeze        // it is sent once the faults are over, if it is waited for so long; watches stand still
	lose          // it is sent, and the answer is lost
	forbid        // the server refuses it
	mislead       // a gateway answers that it has no such page
	delay         // as freeze, but it is sent even if nobody waits for it any more
)

var errRefused = errors.New("the test refuses connections")

// set makes the replica suffer until the next call. What was frozen goes on, and is judged anew.
func (f *faults) set(verdict func(*http.Request) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.verdict = verdict
	if f.freed != nil {
		close(f.freed)
	}
	f.freed = make(chan struct{})
}

func (f *faults) all(what fault) { f.set(func(*http.Request) fault { return what }) }

func (f *faults) judge(req *http.Request) (fault, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.verdict == nil {
		return pass, nil
	}
	return f.verdict(req), f.freed
}

func (f *faults) written() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

func (f *faults) wrap(next http.RoundTripper) http.RoundTripper { return faulty{f, next} }

type faulty struct {
	*faults
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport.
func (f faulty) WrappedRoundTripper() http.RoundTripper { return f.next }

func isWatch(req *http.Request) bool { return req.URL.Query().Get("watch") == "true" }

// RoundTrip implements http.RoundTripper.
func (f faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		what, freed := f.judge(req)
		switch what {
		case refuse:
			return nil, errRefused
		case forbid:
			return forbidden(req), nil
		case mislead:
			answer := httptest.NewRecorder()
			http.NotFound(answer, req)
			return answer.Result(), nil
		case freeze:
			select {
			case <-freed:
				continue
			case <-req.Context().Done():
				return nil, req.Context().Err()
			}
		case lose:
			if resp, err := f.send(req.Clone(context.WithoutCancel(req.Context()))); err == nil {
				_ = resp.Body.Close()
			}
			return nil, errRefused
		case delay:
			late := req.Clone(context.WithoutCancel(req.Context()))
			go func() {
				<-freed
				if resp, err := f.next.RoundTrip(late); err == nil {
					_ = resp.Body.Close()
				}
			}()
			<-req.Context().Done()
			return nil, req.Context().Err()
		case pass:
		}
		return f.send(req)
	}
}

// forbidden is the answer of a server to a request for which there is no right.
func forbidden(req *http.Request) *http.Response {
	const body = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"the test forbids it","code":403}`
	return &http.Response{
		StatusCode: http.StatusForbidden, ProtoMajor: 1, ProtoMinor: 1, Request: req, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

func (f faulty) send(req *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if isWatch(req) {
		resp.Body = &frozen{ReadCloser: resp.Body, req: req, faults: f.faults}
	} else if req.Method != http.MethodGet && resp.StatusCode < http.StatusBadRequest {
		f.mu.Lock()
		f.writes++
		f.mu.Unlock()
	}
	return resp, nil
}

// frozen is a watch, which suffers what new requests for it would.
type frozen struct {
	io.ReadCloser
	req    *http.Request
	faults *faults
}

// Read implements io.Reader.
func (f *frozen) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	for {
		what, freed := f.faults.judge(f.req)
		switch what {
		case pass, mislead:
			return n, err
		case refuse, lose, forbid:
			return 0, errRefused
		case freeze, delay:
			select {
			case <-freed:
			case <-f.req.Context().Done():
				return 0, f.req.Context().Err()
			}
		}
	}
}
