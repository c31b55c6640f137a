package providertest

import (
	"context"
	"maps"
	"strconv"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

// brokenFollowers are providers that do not follow the source.
func brokenFollowers() []broken {
	return []broken{
		{
			fault: "it follows, and does not list",
			make: chosen(func(m *memory) func(fleet.Member) bool {
				first := there(m)
				return func(m fleet.Member) bool { return !first[m.Name] }
			}),
			fails: map[string]string{"what is there at the start is reported": `"one" is not reported`},
		},
		{
			fault: "it lists, and does not follow",
			make: chosen(func(m *memory) func(fleet.Member) bool {
				first := there(m)
				return func(m fleet.Member) bool { return first[m.Name] }
			}),
			fails: map[string]string{
				"what comes later is reported":                       `"one" is not reported`,
				"a touch is no news":                                 `"later" is not reported`,
				"what is renamed is withdrawn and reported":          `"after" is not reported`,
				"what cannot be used harms no other":                 `"later" is not reported`,
				"the older of two has the name":                      `"later" is not reported`,
				"a refused member harms no other":                    `"later" is not reported`,
				"an interruption withdraws nothing and is caught up": `"comes" is not reported`,
				"no goroutine is left":                               `"two" is not reported`,
				"no cluster is called":                               `"two" is not reported`,
				"no credentials are told":                            `"later" is not reported`,
			},
		},
		{
			fault: "new credentials make another member",
			make: filtered(func(*memory) filter {
				tokens := map[fleet.ClusterName]string{}
				return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
					if m.Config != nil {
						if before, ok := tokens[m.Name]; ok && before != m.Config.BearerToken {
							to.Remove(m.Name)
						}
						tokens[m.Name] = m.Config.BearerToken
					}
					return to.Set(m)
				}}
			}),
			fails: map[string]string{
				"new credentials are news of the same member":        `["renewed"] were withdrawn, want []`,
				"an interruption withdraws nothing and is caught up": `["changes" "goes"] were withdrawn, want ["goes"]`,
			},
		},
		{
			fault: "new credentials have the revision of the old",
			make: changed(func() func(*fleet.Member) {
				return func(m *fleet.Member) { m.Revision = host(*m) }
			}),
			fails: map[string]string{"new credentials are news of the same member": "passes for the one before"},
		},
		{
			fault: "new credentials are written into the config of the old",
			make: changed(func() func(*fleet.Member) {
				first := map[fleet.ClusterName]*rest.Config{}
				return func(m *fleet.Member) {
					if m.Config == nil {
						return
					}
					if first[m.Name] == nil {
						first[m.Name] = m.Config
					}
					*first[m.Name] = *m.Config
					m.Config = first[m.Name]
				}
			}),
			fails: map[string]string{"new credentials are news of the same member": "has been changed since"},
		},
		{
			fault: "each report has a new revision",
			make: changed(func() func(*fleet.Member) {
				revision := 0
				return func(m *fleet.Member) {
					revision++
					m.Revision = strconv.Itoa(revision)
				}
			}),
			fails: map[string]string{"a touch is no news": `Revision "2", Labels map[]) came after Set("touched"`},
		},
		{
			fault: "a touch withdraws the member, for a moment",
			make: filtered(func(*memory) filter {
				reports := 0
				return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
					if m.Name == "touched" {
						if reports++; reports == 2 {
							to.Remove(m.Name)
						}
					}
					return to.Set(m)
				}}
			}),
			fails: map[string]string{"a touch is no news": `["touched"] were withdrawn, want []`},
		},
		{
			fault: "nothing is withdrawn",
			make: filtered(func(*memory) filter {
				return filter{remove: func(context.Context, fleet.Members, fleet.ClusterName) (drained <-chan struct{}) { return nil }}
			}),
			fails: map[string]string{
				"what is removed is withdrawn":                       `["removed"] are members too`,
				"what leaves is withdrawn when it has left":          "the member that has left is not withdrawn",
				"what comes back is reported anew":                   `["removed"] are members too`,
				"what is renamed is withdrawn and reported":          `["before"] are members too`,
				"an interruption withdraws nothing and is caught up": `["goes"] are members too`,
				"the end waits for no drain":                         "the member is not being removed",
				"no goroutine is left":                               `["two"] are members too`,
				"no cluster is called":                               `["two"] are members too`,
			},
		},
		{
			fault: "a removal withdraws all, for a moment",
			make: filtered(func(*memory) filter {
				known := map[fleet.ClusterName]fleet.Member{}
				return filter{
					set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
						known[m.Name] = m
						return to.Set(m)
					},
					remove: func(_ context.Context, to fleet.Members, name fleet.ClusterName) (drained <-chan struct{}) {
						delete(known, name)
						for other, m := range known {
							to.Remove(other)
							_ = to.Set(m)
						}
						return to.Remove(name)
					},
				}
			}),
			fails: map[string]string{
				"what is removed is withdrawn":                       `["other" "removed"] were withdrawn, want ["removed"]`,
				"what leaves is withdrawn when it has left":          `["leaver" "other"] were withdrawn, want ["leaver"]`,
				"what is renamed is withdrawn and reported":          `["after" "before" "other"] were withdrawn, want ["before"]`,
				"an interruption withdraws nothing and is caught up": `["changes" "comes" "goes" "stays"] were withdrawn, want ["goes"]`,
			},
		},
		{
			fault: "a name that was removed is never reported again",
			make: filtered(func(*memory) filter {
				gone := map[fleet.ClusterName]bool{}
				return filter{
					set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
						if gone[m.Name] {
							return nil
						}
						return to.Set(m)
					},
					remove: func(_ context.Context, to fleet.Members, name fleet.ClusterName) (drained <-chan struct{}) {
						gone[name] = true
						return to.Remove(name)
					},
				}
			}),
			fails: map[string]string{"what comes back is reported anew": `"removed" is not reported`},
		},
		{
			fault: "a server keeps its first name",
			make: chosen(func(*memory) func(fleet.Member) bool {
				names := map[string]fleet.ClusterName{}
				return func(m fleet.Member) bool {
					if host(m) == "" {
						return true
					}
					if _, ok := names[host(m)]; !ok {
						names[host(m)] = m.Name
					}
					return names[host(m)] == m.Name
				}
			}),
			fails: map[string]string{"what is renamed is withdrawn and reported": `"after" is not reported`},
		},
		{
			fault: "there are no labels",
			make:  changed(func() func(*fleet.Member) { return func(m *fleet.Member) { m.Labels = nil } }),
			fails: map[string]string{
				"labels are reported": `"labelled": its label`,
				"labels are followed": `"labelled": its label`,
			},
		},
		{
			fault: "labels stay as they were at first",
			make: changed(func() func(*fleet.Member) {
				first := map[fleet.ClusterName]map[string]string{}
				return func(m *fleet.Member) {
					if _, ok := first[m.Name]; !ok {
						first[m.Name] = m.Labels
					}
					m.Labels = first[m.Name]
				}
			}),
			fails: map[string]string{"labels are followed": `its label tier is "test", want "production"`},
		},
		{
			fault: "labels are never removed",
			make: changed(func() func(*fleet.Member) {
				all := map[string]string{}
				return func(m *fleet.Member) {
					maps.Copy(all, m.Labels)
					m.Labels = all
				}
			}),
			fails: map[string]string{"labels are followed": "has a label that was removed"},
		},
		{
			fault: "new labels make another member",
			make: filtered(func(*memory) filter {
				known := map[fleet.ClusterName]map[string]string{}
				return filter{set: func(_ context.Context, to fleet.Members, m fleet.Member) error {
					if labels, ok := known[m.Name]; ok && !maps.Equal(labels, m.Labels) {
						to.Remove(m.Name)
					}
					known[m.Name] = m.Labels
					return to.Set(m)
				}}
			}),
			fails: map[string]string{"labels are followed": `["labelled"] were withdrawn, want []`},
		},
		{
			fault: "the younger has the name, for a moment",
			make: filtered(func(m *memory) filter {
				done := false
				return filter{set: func(_ context.Context, to fleet.Members, older fleet.Member) error {
					if younger := m.youngest(string(older.Name)); !done && older.Err == nil && younger.Config.Host != host(older) {
						done = true
						_ = to.Set(fleet.Member{Name: older.Name, Config: younger.Config})
					}
					return to.Set(older)
				}}
			}),
			fails: map[string]string{"the older of two has the name": "the younger was reported: its host is"},
		},
		{
			fault: "the younger is forgotten",
			make: chosen(func(*memory) func(fleet.Member) bool {
				hosts := map[fleet.ClusterName]string{}
				return func(m fleet.Member) bool {
					if _, ok := hosts[m.Name]; !ok && m.Err == nil {
						hosts[m.Name] = host(m)
					}
					return m.Err != nil || hosts[m.Name] == host(m)
				}
			}),
			fails: map[string]string{"the older of two has the name": `"twice": its host is`},
		},
		{
			fault: "the younger has the name",
			make:  differing(func(f *follower) { f.choose = func(_, younger entry) entry { return younger } }),
			fails: map[string]string{"the older of two has the name": `"twice": its host is`},
		},
	}
}
