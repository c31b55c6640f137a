package fleet

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// line is one network connection to a member. Before anything is sent on it, it has to be proved that it leads to the
// member's cluster: what answers at an address may be another one than before, behind a proxy or after a failover.
type line struct {
	net.Conn
	heard *atomic.Int64 // when bytes last arrived on any line of the generation, in nanoseconds since 1970

	proved  atomic.Bool
	proving chan struct{} // has a token while one request proves it; the others wait for the answer
}

func newLine(conn net.Conn, heard *atomic.Int64) *line {
	return &line{Conn: conn, heard: heard, proving: make(chan struct{}, 1)}
}

// lineOf returns the line below a connection, or nil if it is none of ours.
func lineOf(conn net.Conn) *line {
	for conn != nil {
		switch c := conn.(type) {
		case *line:
			return c
		case interface{ NetConn() net.Conn }: // TLS
			conn = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// Read implements net.Conn.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// prove runs a proof, once it has worked never again, and for all requests that need it at the moment together. A line
// whose proof fails is closed, so that nothing can leave on it any more.
func (l *line) prove(ctx context.Context, proof func(context.Context) error) error {
	if l.proved.Load() {
		return nil
	}
	select {
	case l.proving <- struct{}{}:
	case <-ctx.Done():
		_ = l.Close()
		return context.Cause(ctx)
	}
	defer func() { <-l.proving }()
	if l.proved.Load() {
		return nil
	}
	if err := proof(ctx); err != nil {
		_ = l.Close()
		return err
	}
	l.proved.Store(true)
	return nil
}
