package mctest

import (
	"net"
	"sync"
	"testing"
)

// Silent returns the address (host:port) of a listener that accepts every connection and never answers, until the test
// ends. A member at "https://" + Silent(t) is one that hangs.
func Silent(tb testing.TB) string {
	tb.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	must(tb, err)

	var accepting sync.WaitGroup
	var conns []net.Conn
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			conns = append(conns, conn)
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return listener.Addr().String()
}
