package fleet

import (
	"errors"
	"io"
	"net/http"

	"github.com/fleet-runtime/fleet-runtime/internal/pulse"
)

// errTooLarge ends an answer that does not end.
var errTooLarge = errors.New("the answer is too large: see Options.MaxResponseBytes")

// countedBody is the body of an ordinary response: the request is under way until it is closed.
type countedBody struct {
	io.ReadCloser
	left int64
	end  func()

	reconcile *pulse.Pulse // that reads it, if one does
	from      string       // the member's name

	// For requests of which health is told, or else nil:
	wire     *wire
	req      *http.Request
	exchange *exchange
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	b.reconcile.Wait(b.from)
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.reconcile.Heard(b.from)
	b.left -= int64(n)
	if b.exchange == nil {
		return n, err
	}
	if n > 0 {
		b.exchange.arrives()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.wire.explained(b.req, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// watchBody is the body of a watch. Each event is a sign of life, and an end that the server did not mean casts doubt on it.
// When the credentials were replaced the watch ends in due form, so that the informer goes on from where it was; at any
// other error it might list everything again.
type watchBody struct {
	io.ReadCloser
	health     *health
	generation *generation
	release    func()
	frames     *frames // nil for events whose length is known
	most       int64   // bytes of one event
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.health.heardEvent()
	}
	if b.frames != nil && b.frames.read(p[:n]) > b.most {
		return 0, errTooLarge
	}
	switch {
	case err == nil || errors.Is(err, io.EOF):
	case b.generation.isRetired():
		err = io.EOF
	default:
		b.health.failed()
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
