package mctest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Where servers listen. Their ports are below those that Linux (32768) and macOS (49152) give to outgoing connections, as envtest's are
// not: there, a connection can take the port of a server before it listens, or while it is stopped.
const (
	minPort = 20000
	maxPort = 32000

	// blockSize is how many ports a control plane has: one that reserves them, etcd's and the API server's. Blocks begin
	// at multiples of it from minPort, so two of them are the same or have no port in common.
	blockSize = 3

	loopback = "127.0.0.1"
)

// ports are those of one control plane. No other has them until they are closed, in this process or another.
type ports struct {
	etcd, apiServer string
	// reserved listens at the first port of the block, for as long as the block is taken, and answers nothing. The servers
	// themselves listen too late, and not while they are stopped. It ends with this process, however that ends.
	reserved net.Listener
}

// reservePorts reserves ports of this machine at which nothing listens.
func reservePorts(ctx context.Context) (*ports, error) {
	var errs []error
	for range 20 {
		p, err := reserveBlock(ctx, minPort+blockSize*rand.N((maxPort-minPort)/blockSize)) //nolint:gosec // it hides nothing
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("looking for free ports from %d to %d: %w", minPort, maxPort, errors.Join(errs...))
}

// reserveBlock reserves the ports from first on, unless another control plane has them or something listens there.
func reserveBlock(ctx context.Context, first int) (*ports, error) {
	reserved, err := listen(ctx, first)
	if err != nil {
		return nil, err
	}
	for port := first + 1; port < first+blockSize; port++ {
		probe, err := listen(ctx, port)
		if err == nil {
			err = probe.Close()
		}
		if err != nil {
			return nil, errors.Join(err, reserved.Close())
		}
	}
	return &ports{etcd: strconv.Itoa(first + 1), apiServer: strconv.Itoa(first + 2), reserved: reserved}, nil
}

// close gives the ports to other control planes. What listens at them must have ended.
func (p *ports) close() error { return p.reserved.Close() }

func listen(ctx context.Context, port int) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
}
