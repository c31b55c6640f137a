package sharding

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/fleet-runtime/fleet-runtime/internal/credplugin"
)

// hub is the API server that has the Leases. What renews, what watches and what writes the table have connections of their
// own, so that none waits for another.
type hub struct{ renewing, watching, writing line }

// line is a way to the Leases of a namespace, for one request at a time beside watches.
type line struct {
	coordinationclient.LeaseInterface
	clock  clock
	try    time.Duration
	dialer *connrotation.Dialer // nil if the config brings a transport of its own
	http   *http.Client
}

func newHub(config *rest.Config, namespace string, c clock, try time.Duration) (*hub, error) {
	h := &hub{}
	plugin := &credplugin.Plugin{} // client-go runs one program for all of them
	for _, l := range []*line{&h.renewing, &h.watching, &h.writing} {
		var err error
		if *l, err = newLine(config, namespace, c, try, plugin); err != nil {
			return nil, fmt.Errorf("sharding: making a client of the local cluster: %w", err)
		}
	}
	return h, nil
}

func newLine(config *rest.Config, namespace string, c clock, try time.Duration, plugin *credplugin.Plugin) (line, error) {
	l := line{clock: c, try: try}
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 0 // replicas write little, and each write has a time limit of its own
	config.RateLimiter = nil
	if config.Transport == nil {
		dial := config.Dial
		if dial == nil {
			dial = (&net.Dialer{Timeout: c.real(try), KeepAlive: 30 * time.Second}).DialContext
		}
		l.dialer = connrotation.NewDialer(dial)
		config.Dial = l.dialer.DialContext
		if config.Proxy == nil {
			config.Proxy = http.ProxyFromEnvironment // client-go keeps no transport of a config with such a function
		}
	}
	var err error
	if l.http, err = rest.HTTPClientFor(config); err != nil {
		return l, err
	}
	l.http.Transport = plugin.Guard(config, l.http.Transport)
	client, err := coordinationclient.NewForConfigAndClient(config, l.http)
	if err != nil {
		return l, err
	}
	l.LeaseInterface = client.Leases(namespace)
	return l, nil
}

// ask makes a request that has as much time as a try. If no answer comes, the next one gets a new connection: this one may lead
// nowhere.
func ask[T any](ctx context.Context, l line, request func(ctx context.Context) (T, error)) (T, error) {
	limited, cancel := within(ctx, l.clock, l.try)
	defer cancel()
	answer, err := request(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		l.redial()
	}
	return answer, err
}

// redial closes all connections, so that the next request makes a new one.
func (l line) redial() {
	if l.dialer != nil {
		l.dialer.CloseAll()
	}
}

func (h *hub) close() {
	for _, l := range []line{h.renewing, h.watching, h.writing} {
		l.redial()
		utilnet.CloseIdleConnectionsFor(l.http.Transport)
	}
}
