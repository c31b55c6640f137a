package mctest

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// Address returns an address (host:port) of this machine that belongs to the test until it ends: the test can listen there
// as often as it wants, and while it does not, connections are refused. A member at "https://" + Address(t) is one that
// refuses connections, and a proxy there can come and go.
//
// Nobody else is given the port meanwhile, on Linux. Elsewhere the port is free while nobody listens, and in theory another
// program may take it.
func Address(tb testing.TB) string {
	tb.Helper()
	socket, err := newSocket()
	must(tb, err)
	free := func() { _ = syscall.Close(socket) }
	if runtime.GOOS == "linux" { // which lets others listen beside a socket that is bound and does not
		tb.Cleanup(free)
	} else {
		defer free()
	}
	addr, err := bind(socket)
	must(tb, err)
	return addr.String()
}

// newSocket returns a socket that no program inherits which is started meanwhile.
func newSocket() (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	syscall.CloseOnExec(socket)
	return socket, nil
}

// bind binds a socket to a free port, which it does not listen at.
func bind(socket int) (netip.AddrPort, error) {
	if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil { // as Go's listeners have it
		return netip.AddrPort{}, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return netip.AddrPort{}, os.NewSyscallError("bind", err)
	}
	addr, err := syscall.Getsockname(socket)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	own, ok := addr.(*syscall.SockaddrInet4)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("the socket is bound to %#v", addr)
	}
	return netip.AddrPortFrom(netip.AddrFrom4(own.Addr), uint16(own.Port)), nil //nolint:gosec // it is a port
}
