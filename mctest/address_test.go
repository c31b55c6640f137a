package mctest_test

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func TestAddressRefusesConnectionsWhileNobodyListens(t *testing.T) {
	addr := mctest.Address(t)
	for range 3 {
		if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the connection is %v, the error %v; want that it is refused", conn, err)
		}
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Close(), listener.Close()); err != nil {
			t.Error(err)
		}
	}
}
