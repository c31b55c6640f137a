package stage

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Recorder is a proxy before a control plane that writes down which writes it passes on, and when. It asks with the rights of the
// test, whoever asks it. Its methods are safe for concurrent use.
type Recorder struct {
	config *rest.Config
	delay  atomic.Int64

	mu     sync.Mutex // guards what follows
	writes []Write
}

// Write is a request that may change something.
type Write struct {
	Path, UserAgent string
	Body            []byte
	// Arrived is when it came, Answered when its answer was complete, or could not be had any more. What it changes, it has
	// changed in between.
	Arrived, Answered time.Time
	// Status is the code of the answer, 0 if there was none.
	Status int
}

// NewRecorder starts a recorder, which ends with the test.
func NewRecorder(t *testing.T, cp *mctest.ControlPlane) *Recorder {
	t.Helper()
	r := &Recorder{}
	through := passOn(t, cp.Config())
	r.config = configFor(serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			through.ServeHTTP(w, req)
			return
		}
		r.pass(w, req, through)
	}))
	return r
}

// pass passes a write on, and notes what became of it. Once it has come as a whole, it is carried out, whether or not anybody
// waits for the answer.
func (r *Recorder) pass(w http.ResponseWriter, req *http.Request, through http.Handler) {
	noted := Write{Path: req.URL.Path, UserAgent: req.UserAgent(), Arrived: time.Now()}
	var err error
	if noted.Body, err = io.ReadAll(req.Body); err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	answer := &status{ResponseWriter: w}
	defer func() {
		noted.Answered, noted.Status = time.Now(), answer.code
		r.mu.Lock()
		defer r.mu.Unlock()
		r.writes = append(r.writes, noted)
	}()
	req = req.WithContext(context.WithoutCancel(req.Context()))
	req.Body = io.NopCloser(bytes.NewReader(noted.Body))
	<-time.After(time.Duration(r.delay.Load()))
	through.ServeHTTP(answer, req)
}

// Delay makes writes wait before they are passed on.
func (r *Recorder) Delay(d time.Duration) { r.delay.Store(int64(d)) }

// Config is the way to reach the control plane through the recorder.
func (r *Recorder) Config() *rest.Config { return rest.CopyConfig(r.config) }

// Writes returns what was written from the given number on, in the order of the answers.
func (r *Recorder) Writes(from int) []Write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes[from:])
}

// status notes the code of an answer.
type status struct {
	http.ResponseWriter

	code int
}

// WriteHeader implements http.ResponseWriter.
func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap lets the proxy flush.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }
