package providertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// brokenManners are providers that do not end well, or touch what is not theirs.
func brokenManners() []broken {
	return []broken{
		{
			fault: "it goes on after the end",
			make: func(*memory) fleet.Provider {
				return running(func(context.Context, cluster.Cluster, fleet.Members) error { select {} })
			},
			fails: map[string]string{"Run returns when its context ends": "Run has not returned"},
		},
		{
			fault: "it withdraws all at the end",
			make: func(m *memory) fleet.Provider {
				return running(func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
					err := good(m).Run(ctx, local, members)
					for name := range there(m) {
						members.Remove(name)
					}
					return err
				})
			},
			fails: map[string]string{
				"the end withdraws nothing": `["one" "two"] were withdrawn, want []`,
			},
		},
		{
			fault: "the end is an error",
			make: func(m *memory) fleet.Provider {
				return running(func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
					_ = good(m).Run(ctx, local, members)
					return errors.New("stopped")
				})
			},
			fails: map[string]string{"the end withdraws nothing": "Run returned an error because its context ended: stopped"},
		},
		{
			fault: "the end waits for drains",
			make: filtered(func(*memory) filter {
				return filter{remove: func(_ context.Context, to fleet.Members, name fleet.ClusterName) (drained <-chan struct{}) {
					drained = to.Remove(name)
					<-drained
					return drained
				}}
			}),
			fails: map[string]string{"the end waits for no drain": "Run has not returned"},
		},
		{
			fault: "it leaves a goroutine",
			make: func(m *memory) fleet.Provider {
				return running(func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
					go func() { select {} }()
					return good(m).Run(ctx, local, members)
				})
			},
			fails: map[string]string{"no goroutine is left": "found unexpected goroutines"},
		},
		{
			fault: "it calls the clusters",
			make: filtered(func(*memory) filter {
				return filter{set: func(ctx context.Context, to fleet.Members, m fleet.Member) error {
					if address := strings.TrimPrefix(host(m), "https://"); address != "" {
						if conn, err := new(net.Dialer).DialContext(ctx, "tcp", address); err == nil {
							_ = conn.Close()
						}
					}
					return to.Set(m)
				}}
			}),
			fails: map[string]string{"no cluster is called": "connections to a cluster"},
		},
		{
			fault: "it withdraws at once what leaves",
			make: filtered(func(*memory) filter {
				return filter{leave: func(_ context.Context, to fleet.Members, m fleet.Member) (<-chan struct{}, error) {
					return to.Remove(m.Name), nil
				}}
			}),
			fails: map[string]string{"what leaves is withdrawn when it has left": "the member is not reported as one that leaves"},
		},
		{
			fault: "tokens are logged",
			make: filtered(func(*memory) filter {
				return filter{set: func(ctx context.Context, to fleet.Members, m fleet.Member) error {
					if m.Config != nil {
						logf.FromContext(ctx).V(4).Info("Reporting", "token", m.Config.BearerToken)
					}
					return to.Set(m)
				}}
			}),
			fails: map[string]string{"no credentials are told": `there is a token in the log or in an error: "level"=4 "msg"="Reporting"`},
		},
		{
			fault: "tokens are in errors",
			make: differing(func(f *follower) {
				f.why = func(e entry) error { return fmt.Errorf("cannot make anything of %q", e.Config.BearerToken) }
			}),
			fails: map[string]string{"no credentials are told": "there is a token in the log or in an error: cannot make anything of"},
		},
		{
			fault: "tokens are in problems",
			make: filtered(func(*memory) filter {
				return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
					if m.Config != nil {
						to.SetProblem(fleet.Problem{Provider: "memory", About: "an entry", Reason: "Odd", Message: m.Config.BearerToken})
					}
					return to.Set(m)
				}}
			}),
			fails: map[string]string{"no credentials are told": "there is a token in the log or in an error: {Provider:memory"},
		},
	}
}
