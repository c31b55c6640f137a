package providertest

import (
	"context"
	"errors"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// brokenInTrouble are providers that fail when something else does.
func brokenInTrouble() []broken {
	return []broken{
		{
			fault: "what cannot be used ends everything",
			make: chosen(func(*memory) func(fleet.Member) bool {
				ended := false
				return func(m fleet.Member) bool {
					ended = ended || m.Err != nil
					return !ended
				}
			}),
			fails: map[string]string{
				"what cannot be used harms no other": `"later" is not reported`,
				"no credentials are told":            `"later" is not reported`,
			},
		},
		{
			fault: "what cannot be used is reported as if it could",
			make: changed(func() func(*fleet.Member) {
				return func(m *fleet.Member) {
					if m.Err != nil {
						m.Err, m.Config = nil, &rest.Config{}
					}
				}
			}),
			fails: map[string]string{"what cannot be used harms no other": `it was reported as if it could be used: Set("bad"`},
		},
		{
			fault: "what was broken stays so",
			make: chosen(func(*memory) func(fleet.Member) bool {
				broke := map[fleet.ClusterName]bool{}
				return func(m fleet.Member) bool {
					broke[m.Name] = broke[m.Name] || m.Err != nil
					return !broke[m.Name] || m.Err != nil
				}
			}),
			fails: map[string]string{"what cannot be used harms no other": `"bad": it is reported with the error "the entry is broken"`},
		},
		{
			fault: "what breaks withdraws the others, for a moment",
			make: filtered(func(*memory) filter {
				known := map[fleet.ClusterName]fleet.Member{}
				return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
					for name, other := range known {
						if m.Err != nil && known[m.Name].Err == nil && name != m.Name {
							to.Remove(name)
							_ = to.Set(other)
						}
					}
					known[m.Name] = m
					return to.Set(m)
				}}
			}),
			fails: map[string]string{"what cannot be used harms no other": `"good" was withdrawn, which nothing was wrong with`},
		},
		{
			fault: "a refused member ends it",
			make: func(m *memory) fleet.Provider {
				return running(func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
					ctx, end := context.WithCancelCause(ctx)
					err := good(m).Run(ctx, local, filter{Members: members, set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
						err := to.Set(m)
						if err != nil {
							end(err)
						}
						return err
					}})
					if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
						return cause
					}
					return err
				})
			},
			fails: map[string]string{
				"a refused member harms no other": "Run returned before the end of its context: invalid member",
				"no credentials are told":         "Run returned before the end of its context: invalid member",
			},
		},
		{
			fault: "a refused member is never reported again",
			make: filtered(func(*memory) filter {
				refused := map[fleet.ClusterName]bool{}
				return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
					if refused[m.Name] {
						return nil
					}
					err := to.Set(m)
					refused[m.Name] = err != nil
					return err
				}}
			}),
			fails: map[string]string{"a refused member harms no other": `"refused" is not reported`},
		},
		{
			fault: "it ends if the source is away at the start",
			make: differing(func(f *follower) {
				f.away = func(_ context.Context, _ fleet.Members, known map[fleet.ClusterName]bool) error {
					if len(known) == 0 {
						return errAway
					}
					return nil
				}
			}),
			fails: map[string]string{"a source that is away at the start is waited for": "the source is away"},
		},
		{
			fault: "what cannot be seen is withdrawn",
			make: differing(func(f *follower) {
				f.away = func(_ context.Context, members fleet.Members, known map[fleet.ClusterName]bool) error {
					for name := range known {
						members.Remove(name)
					}
					return nil
				}
			}),
			fails: map[string]string{
				"an interruption withdraws nothing and is caught up": `["changes" "goes" "stays"] were withdrawn, want ["goes"]`,
			},
		},
		{
			fault: "what was removed while the source was away is missed",
			make: func(m *memory) fleet.Provider {
				return running(func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
					f, away := good(m), false
					f.away = func(context.Context, fleet.Members, map[fleet.ClusterName]bool) error {
						away = true
						return nil
					}
					return f.Run(ctx, local, filter{
						Members: members,
						remove: func(_ context.Context, to fleet.Members, name fleet.ClusterName) (drained <-chan struct{}) {
							if away {
								return nil
							}
							return to.Remove(name)
						},
					})
				})
			},
			fails: map[string]string{"an interruption withdraws nothing and is caught up": `["goes"] are members too`},
		},
	}
}
