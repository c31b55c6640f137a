package providertest

import (
	"context"
	"errors"
	"net"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// Line is a way to an API server that can be cut. It serves [Source.Interrupt] of providers that discover by objects in
// the local cluster, while the test reaches the server by another way. The zero value is a line that is not cut. Its
// methods are safe for concurrent use.
type Line struct {
	mu    sync.Mutex // guards what follows
	conns *connrotation.ConnectionTracker
	cut   func() // notes an attempt to connect; nil while the line works
}

var errCut = errors.New("the line is cut")

// Through returns a copy of config whose connections go through the line.
func (l *Line) Through(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if l.isCut() {
			return nil, errCut
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return l.track(conn)
	}
	return config
}

// Cut closes all connections of the line and lets none be made until restore is called. noticed is closed at the first
// attempt. A line must be restored before it is cut again.
func (l *Line) Cut() (noticed <-chan struct{}, restore func()) {
	attempted := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = sync.OnceFunc(func() { close(attempted) })
	if l.conns != nil {
		l.conns.CloseAll()
	}
	return attempted, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cut = nil
	}
}

func (l *Line) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut == nil {
		return false
	}
	l.cut()
	return true
}

// track makes conn one that Cut closes, unless the line was cut meanwhile.
func (l *Line) track(conn net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		l.cut()
		_ = conn.Close()
		return nil, errCut
	}
	if l.conns == nil {
		l.conns = connrotation.NewConnectionTracker()
	}
	return l.conns.Track(conn), nil
}
