package main

import (
	"bytes"
	"context"
	"net"
	"sync"
)

// dam forwards TCP connections to one address, until it is shut: then it goes on to take connections, and nothing flows.
// What it has held back flows when it is opened again.
type dam struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	open  chan struct{}
	links map[net.Conn]struct{}
	ended bool
}

// newDam starts an open dam at all addresses of the machine.
func newDam(ctx context.Context, target string) (*dam, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	d := &dam{listener: listener, target: target, open: make(chan struct{}), links: map[net.Conn]struct{}{}}
	close(d.open)
	d.running.Go(d.accept)
	return d, nil
}

func (d *dam) port() string {
	_, port, _ := net.SplitHostPort(d.listener.Addr().String())
	return port
}

func (d *dam) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // it was closed
		}
		d.running.Go(func() { d.serve(conn) })
	}
}

// serve forwards one connection. One that is made while the dam is shut reaches the server when it is opened again: a server
// that is frozen does not know of it either, and cannot give it up.
func (d *dam) serve(client net.Conn) {
	done := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(done)
		_ = client.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.links, client)
	})
	defer end()
	d.mu.Lock()
	d.links[client] = struct{}{}
	ended := d.ended
	d.mu.Unlock()
	if ended {
		return
	}
	asked := d.read(client, done, end)
	if !d.awaitOpen(done) {
		return
	}
	server, err := net.Dial("tcp", d.target) //nolint:noctx // on loopback
	if err != nil {
		return
	}
	answered := d.read(server, done, end)
	d.running.Go(func() {
		<-done
		_ = server.Close()
	})
	d.running.Go(func() { d.flow(server, asked, done, end) })
	d.flow(client, answered, done, end)
}

// awaitOpen returns true once the dam is open, or false if done is closed.
func (d *dam) awaitOpen(done <-chan struct{}) bool {
	d.mu.Lock()
	open := d.open
	d.mu.Unlock()
	select {
	case <-open:
		return true
	case <-done:
		return false
	}
}

// read reads also while the dam is shut, since a connection may be closed meanwhile.
func (d *dam) read(src net.Conn, done <-chan struct{}, end func()) <-chan []byte {
	const most = 64 // parts that are held back, of each direction
	parts := make(chan []byte, most)
	d.running.Go(func() {
		defer end()
		buf := make([]byte, 16<<10)
		for {
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			select {
			case parts <- bytes.Clone(buf[:n]):
			case <-done:
				return
			}
		}
	})
	return parts
}

func (d *dam) flow(dst net.Conn, parts <-chan []byte, done <-chan struct{}, end func()) {
	defer end()
	for {
		select {
		case part := <-parts:
			if !d.awaitOpen(done) {
				return
			}
			if _, err := dst.Write(part); err != nil {
				return
			}
		case <-done:
			return
		}
	}
}

func (d *dam) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = make(chan struct{})
}

func (d *dam) reopen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.open)
}

func (d *dam) close() error {
	err := d.listener.Close()
	d.mu.Lock()
	d.ended = true
	for client := range d.links {
		_ = client.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
	return err
}
