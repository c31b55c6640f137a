package mctest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Where servers listen. Their ports are below those that Linux (32768) and macOS (49152) give to outgoing connections, as envtest's are
// not: there, a connection can take the port of a server before it listens, or while it is stopped.
const (
	minPort = 20000
	maxPort = 32000

	loopback = "127.0.0.1"
)

// assignPorts has the servers of a control plane listen at free ports.
func assignPorts(ctx context.Context, etcd *envtest.Etcd, apiServer *envtest.APIServer) error {
	forClients, err := freePort(ctx)
	if err != nil {
		return err
	}
	etcd.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(loopback, forClients)}
	etcd.Configure().Set("listen-peer-urls", "http://"+net.JoinHostPort(loopback, "0")) // it has no peers
	apiServer.Address = loopback
	apiServer.Port, err = freePort(ctx)
	return err
}

// freePort returns a port of this machine at which nothing listens.
func freePort(ctx context.Context) (string, error) {
	var errs []error
	for range 20 {
		port := strconv.Itoa(minPort + rand.N(maxPort-minPort)) //nolint:gosec // it hides nothing
		var listen net.ListenConfig
		listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(loopback, port))
		if err == nil {
			return port, listener.Close()
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("looking for a free port from %d to %d: %w", minPort, maxPort, errors.Join(errs...))
}
