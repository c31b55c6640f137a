package fleet

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// line is one network connection to a member. Before anything is sent on it, it has to be proved that it leads to the
// member's cluster: what answers at an address may be another one than before, behind a proxy or after a failover.
type line struct {
	net.Conn
	generation *generation
	made       time.Time

	opened  sync.Once // ends the deadline of newLine
	proved  atomic.Bool
	proving chan struct{} // has a token while one request proves it; the others wait for the answer
	failed  error         // why it is closed; of the request that has the token
}

// openWithin is how long a connection may take to open, unless openUntil says more: until the TLS handshake is done, with
// what a proxy does.
const openWithin = 10 * time.Second

// openUntil is the key of a context whose requests may wait until a time for a connection to open. It is a value, since
// net/http goes on to dial when the request has ended, for others that may follow.
type openUntil struct{}

// openingMeanwhile lets the connection that is made for a request take as long to open as the request may take.
func openingMeanwhile(ctx context.Context) context.Context {
	until, _ := ctx.Deadline()
	return context.WithValue(ctx, openUntil{}, until)
}

// newLine returns the line of a connection that was dialed with ctx.
func newLine(ctx context.Context, conn net.Conn, g *generation) *line {
	l := &line{Conn: conn, generation: g, made: time.Now(), proving: make(chan struct{}, 1)}
	until := l.made.Add(openWithin)
	if later, _ := ctx.Value(openUntil{}).(time.Time); later.After(until) {
		until = later
	}
	_ = l.SetReadDeadline(until) // those of a custom dialer may have none: see newGeneration
	return l
}

// open notes that the line can be used: from then on each request has a time of its own.
func (l *line) open() {
	l.opened.Do(func() { _ = l.SetReadDeadline(time.Time{}) })
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
		l.generation.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// Write implements net.Conn. While anything is under way that may change the member, nothing leaves once that has had its time:
// what was cut off in the middle, by a process that was stopped for a while, does not arrive.
func (l *line) Write(p []byte) (int, error) {
	if err := l.generation.late(); err != nil {
		return 0, err
	}
	return l.Conn.Write(p)
}

// proveWithin is how long a line may take to be proved until a request that was waiting for that gives it up.
const proveWithin = 20 * time.Second

// prove runs a proof, once it has worked never again, and for all requests that need it at the moment together. A line
// whose proof fails is closed, so that nothing can leave on it any more. A request that ends before is no failure of a
// line that it shares with others, as with HTTP/2, which sends nothing of such a request.
func (l *line) prove(ctx context.Context, shared bool, proof func(context.Context) error) error {
	if l.proved.Load() {
		return nil
	}
	select {
	case l.proving <- struct{}{}:
	case <-ctx.Done():
		l.abandon(shared)
		return context.Cause(ctx)
	}
	defer func() { <-l.proving }()
	if l.proved.Load() || l.failed != nil {
		return l.failed
	}
	err := proof(ctx)
	switch {
	case err == nil:
		l.proved.Store(true)
	case ctx.Err() != nil:
		l.abandon(shared)
	default:
		l.failed = err
		_ = l.Close()
	}
	return err
}

// abandon closes a line, unless others may wait for it to be proved and have not waited long.
func (l *line) abandon(shared bool) {
	if !shared || time.Since(l.made) > proveWithin {
		_ = l.Close()
	}
}
