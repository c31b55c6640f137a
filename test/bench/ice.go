package main

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// ice is a network between the fleet and an API server that freezes: from then on it takes connections, and passes nothing.
type ice struct {
	listener net.Listener
	target   string
	frozen   atomic.Bool
	ended    chan struct{}
	running  sync.WaitGroup
}

// newIce listens in front of the server of a config. It ends with close.
func newIce(ctx context.Context, cfg *rest.Config) (*ice, error) {
	server, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	i := &ice{listener: listener, target: server.Host, ended: make(chan struct{})}
	i.running.Go(i.accept)
	return i, nil
}

// through is the config by way of the ice.
func (i *ice) through(cfg *rest.Config) *rest.Config {
	server, _ := url.Parse(cfg.Host)
	cfg = rest.CopyConfig(cfg)
	cfg.Host = "https://" + i.listener.Addr().String()
	cfg.ServerName = server.Hostname()
	return cfg
}

func (i *ice) freeze() { i.frozen.Store(true) }

func (i *ice) close() {
	close(i.ended)
	_ = i.listener.Close()
	i.running.Wait()
}

func (i *ice) accept() {
	for {
		conn, err := i.listener.Accept()
		if err != nil {
			return // it was closed
		}
		i.running.Go(func() { i.serve(conn) })
	}
}

func (i *ice) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", i.target) //nolint:noctx // on the same machine
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var passing sync.WaitGroup
	over := make(chan struct{})
	passing.Go(func() {
		select {
		case <-i.ended:
		case <-over:
		}
		_ = client.Close()
		_ = server.Close()
	})
	passing.Go(func() { i.pass(server, client) })
	i.pass(client, server)
	close(over)
	passing.Wait()
}

// pass copies until one side ends, or everything does when it is frozen.
func (i *ice) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && i.frozen.Load() {
			<-i.ended
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
