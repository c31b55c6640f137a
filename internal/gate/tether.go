package gate

import (
	"context"
	"crypto/tls"
	"net"
)

// Tether returns a context that ends with that of a caller, nil for none, until let is called, or when end is. let returns why the
// caller has ended, if it has. It is called when the request is sent: that may change something whether the caller waits or not.
func Tether(ctx, caller context.Context) (tethered context.Context, let func() error, end context.CancelCauseFunc) {
	tethered, end = context.WithCancelCause(ctx)
	if caller == nil {
		return tethered, func() error { return nil }, end
	}
	detach := context.AfterFunc(caller, func() { end(context.Cause(caller)) })
	return tethered, func() error {
		detach()
		return context.Cause(caller)
	}, end
}

// IsShared reports whether a connection has several requests at once.
func IsShared(conn net.Conn) bool {
	c, ok := conn.(interface{ ConnectionState() tls.ConnectionState })
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}
