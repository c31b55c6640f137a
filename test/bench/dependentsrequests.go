package main

import (
	"net/http"
	"path"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// counter counts requests but for watches, and for what the benchmark does itself.
type counter struct{ reads, lists, probes, hub, members atomic.Int64 }

// counts are what a counter has counted.
type counts struct{ reads, lists, probes, hub, members int64 }

func (c *counter) now() counts {
	return counts{c.reads.Load(), c.lists.Load(), c.probes.Load(), c.hub.Load(), c.members.Load()}
}

func (c counts) since(before counts) counts {
	return counts{c.reads - before.reads, c.lists - before.lists, c.probes - before.probes, c.hub - before.hub, c.members - before.members}
}

// count returns a config whose requests are counted. A member sees its own namespace alone, as if there was nothing else in its
// cluster.
func (c *counter) count(cfg *rest.Config, member string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return &counted{c, member, through} })
	return cfg
}

type counted struct {
	*counter

	member  string // empty for the local cluster
	through http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	inHub := strings.Contains(req.URL.Path, "/namespaces/"+metav1.NamespaceDefault+"/")
	switch {
	case query.Has("watch"):
	case req.URL.Path == "/readyz":
		c.probes.Add(1)
	case req.Method == http.MethodGet && query.Has("limit") && query.Has("labelSelector"):
		c.lists.Add(1)
	case req.Method == http.MethodGet:
		c.reads.Add(1)
	case inHub:
		c.hub.Add(1)
	default:
		c.members.Add(1)
	}
	return c.through.RoundTrip(c.within(req))
}

// within returns a request for all objects of a kind as one for those of the member.
func (c *counted) within(req *http.Request) *http.Request {
	if c.member == "" || !req.URL.Query().Has("labelSelector") || strings.Contains(req.URL.Path, "/namespaces/") {
		return req
	}
	req = req.Clone(req.Context())
	version, kind := path.Split(req.URL.Path)
	req.URL.Path = version + "namespaces/" + c.member + "/" + kind
	return req
}

// WrappedRoundTripper lets idle connections of the transport be closed.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.through }
