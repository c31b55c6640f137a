// Package vantage leads requests to a cluster along the way of one caller, which may reach it at another URL than the hub does.
package vantage

import (
	"context"

	"k8s.io/client-go/rest"
)

type key struct{}

// With returns a context for a caller that reaches the cluster at a server. Without one, it reaches the cluster as the hub does.
func With(ctx context.Context, server string) context.Context {
	return context.WithValue(ctx, key{}, server)
}

// Config returns the way of the caller instead of that of the hub. The certificates stay as they are. The proxy of the hub is left out where
// the caller has a server of its own.
func Config(ctx context.Context, ofHub *rest.Config) *rest.Config {
	server, _ := ctx.Value(key{}).(string)
	if server == "" {
		return ofHub
	}
	own := rest.CopyConfig(ofHub)
	own.Host, own.Proxy = server, nil
	return own
}
