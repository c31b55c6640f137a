package measure

import (
	"net/http"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Requests are how many a child has sent to the local cluster.
type Requests struct {
	// LeaseWrites and LeaseReads are of Leases. Watches are no reads.
	LeaseWrites, LeaseReads int64
	// All are of anything, watches included.
	All int64
}

// Less returns how many there are more than before.
func (r Requests) Less(before Requests) Requests {
	return Requests{r.LeaseWrites - before.LeaseWrites, r.LeaseReads - before.LeaseReads, r.All - before.All}
}

// Counted returns a config whose requests are counted.
func (p *Probe) Counted(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &counted{&p.requests, through} })
	return cfg
}

// requests counts. It is safe for concurrent use.
type requests struct{ leaseWrites, leaseReads, all atomic.Int64 }

func (r *requests) now() Requests {
	return Requests{LeaseWrites: r.leaseWrites.Load(), LeaseReads: r.leaseReads.Load(), All: r.all.Load()}
}

type counted struct {
	*requests

	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	c.all.Add(1)
	switch {
	case !strings.Contains(req.URL.Path, "/leases") || req.URL.Query().Has("watch"):
	case req.Method == http.MethodGet:
		c.leaseReads.Add(1)
	default:
		c.leaseWrites.Add(1)
	}
	return c.through.RoundTrip(req)
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.through }
