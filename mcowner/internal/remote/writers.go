package remote

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Writers are the clients with which dependents are written: the cluster's own, or, for each user, one that impersonates.
type Writers struct {
	Access *Access
	User   func(owner mcreconcile.Request) string // nil if nobody is impersonated
	users  PerEngagement[*userClients]
}

// mostUsers is how many users have a client that is kept, in each engagement. Whoever may write a reference to an owner names
// users by it.
const mostUsers = 1000

// userClients are the clients of one engagement, by user.
type userClients struct {
	mu      sync.Mutex // guards clients; making one asks no server
	clients map[string]client.Client
}

// At returns what writes the dependents of an owner, for one piece of work. Nothing is written to a member that is another
// cluster now.
func (w *Writers) At(ctx context.Context, at Session, owner mcreconcile.Request) (client.Writer, error) {
	c, err := w.at(ctx, at, owner)
	if err != nil || !at.IsMember() {
		return c, err
	}
	return &watchful{Writer: c, is: func(ctx context.Context) error { return w.Access.IsStill(ctx, at) }}, nil
}

func (w *Writers) at(ctx context.Context, at Session, owner mcreconcile.Request) (client.Client, error) {
	user, err := w.UserOf(ctx, owner)
	switch {
	case err != nil:
		return nil, fmt.Errorf("finding the user in whose name dependents of %s are written in %s: %w", owner, at, err)
	case user == "":
		return at.Cluster.GetClient(), nil
	case at.Guest != nil:
		return impersonating(user, at.Cluster)
	}
	users, err := w.users.Get(at, func() (*userClients, error) {
		return &userClients{clients: map[string]client.Client{}}, nil
	})
	if err != nil {
		return nil, err
	}
	return users.of(user, at.Cluster)
}

// UserOf returns the user of an owner, empty for none. Whoever may write a reference names owners that User does not expect, so its
// panic is an error.
func (w *Writers) UserOf(ctx context.Context, owner mcreconcile.Request) (user string, err error) {
	defer Recovered(ctx, &err)
	if w.User != nil {
		user = w.User(owner)
	}
	return user, nil
}

// IsOfOneUser reports whether dependents of both owners are written in the name of the same user. An owner has none in common with
// one for which User panics.
func (w *Writers) IsOfOneUser(one, other mcreconcile.Request) (is bool) {
	defer func() {
		if recover() != nil { // it is told when something is written for that owner
			is = false
		}
	}()
	return w.User == nil || one.ClusterName == other.ClusterName && w.User(one) == w.User(other)
}

func (u *userClients) of(user string, cl cluster.Cluster) (client.Client, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c, ok := u.clients[user]; ok {
		return c, nil
	}
	c, err := impersonating(user, cl)
	if err != nil {
		return nil, fmt.Errorf("making a client of user %q: %w", user, err)
	}
	if len(u.clients) >= mostUsers {
		clear(u.clients)
	}
	u.clients[user] = c
	return c, nil
}

// impersonating returns a client that travels as the cluster's own does, with the credentials of the moment, and names the
// user. It reads from the API server.
func impersonating(user string, cl cluster.Cluster) (client.Client, error) {
	own := cl.GetHTTPClient()
	through := own.Transport
	if through == nil {
		through = http.DefaultTransport
	}
	return client.New(cl.GetConfig(), client.Options{
		HTTPClient: &http.Client{
			Transport: transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, through),
			Timeout:   own.Timeout,
		},
		Scheme: cl.GetScheme(),
		Mapper: cl.GetRESTMapper(),
	})
}
