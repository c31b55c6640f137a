// Package vantage leads requests to a cluster along the way of one caller, which may reach it at another URL than the hub does.
package vantage

import (
	"context"
	"net/url"

	"k8s.io/client-go/rest"
)

type key struct{}

// With returns a context for a caller that reaches the cluster at a server. Without one, it reaches the cluster as the hub does.
func With(ctx context.Context, server string) context.Context {
	return context.WithValue(ctx, key{}, server)
}

// Config returns the way of the caller instead of that of the hub. The certificates stay as they are. The proxy of the hub is left out where
// the caller has a server of its own. Where the hub knows the cluster by a public certificate, the server of the caller must have one of the same
// name: by its own name, any server there is would be taken for the cluster.
func Config(ctx context.Context, ofHub *rest.Config) *rest.Config {
	server, _ := ctx.Value(key{}).(string)
	if server == "" {
		return ofHub
	}
	own := rest.CopyConfig(ofHub)
	own.Host, own.Proxy = server, nil
	if len(own.CAData) == 0 && own.ServerName == "" {
		own.ServerName = nameOf(ofHub.Host)
	}
	return own
}

// nameOf returns the name of the server at a URL, and the whole text where there is none: no certificate has that.
func nameOf(server string) string {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Hostname() == "" {
		return server
	}
	return parsed.Hostname()
}
