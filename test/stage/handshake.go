package stage

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// Handshake connects a client to a server, and returns what the client hears of it: an error if one of them refuses the other. They are connected
// by a network, which buffers: over a net.Pipe, a client that tells why it refuses a server would wait for one that still writes to it.
func Handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return // nobody has come
		}
		_ = conn.SetDeadline(deadline)
		_, _ = conn.Write([]byte("hello")) // the client hears of what fails
		_ = conn.Close()
	}()
	defer func() {
		_ = listener.Close()
		<-done
	}()
	conn, err := (&tls.Dialer{NetDialer: &net.Dialer{Deadline: deadline}, Config: client}).DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(deadline)
	_, err = io.ReadFull(conn, make([]byte, len("hello")))
	return err
}
