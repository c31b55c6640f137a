package gate

import (
	"context"
	"io"
)

// body ends the time of a request when its answer is closed.
type body struct {
	io.ReadCloser

	done context.CancelFunc
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
