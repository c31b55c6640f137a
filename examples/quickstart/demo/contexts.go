package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
)

// realClusters is the setting of clusters that exist. Nothing is written to them: the manager elects no leader and
// records no events, and the controller only reads.
func (o options) realClusters(screen screen) (*setting, error) {
	configs, err := o.configs()
	if err != nil {
		return nil, err
	}
	names := strings.Join(o.contexts, ", ")
	screen.say("The fleet: the clusters of " + names + ".\nNothing is written to them.")
	s := &setting{
		local:    configs[o.contexts[0]],
		provider: contexts(configs),
		close:    func() error { return nil },
	}
	if o.stay {
		s.stay = "The table shows what happens there until Ctrl-C."
		return s, nil
	}
	s.steps = []step{{
		say:   "Waiting until each of their ConfigMaps was reconciled.",
		do:    o.allReconciled,
		shown: "Every ConfigMap of " + names + " was reconciled.",
	}}
	return s, nil
}

// contexts is the provider of a few clusters that are known from the start.
func contexts(configs map[string]*rest.Config) fleet.Provider {
	members := make(static.Provider, 0, len(configs))
	for name, config := range configs {
		members = append(members, fleet.Member{Name: fleet.ClusterName(name), Config: config})
	}
	return members
}

// configs returns the ways to reach the clusters, by context.
func (o options) configs() (map[string]*rest.Config, error) {
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: o.kubeconfig}
	loaded, err := rules.Load()
	var fault *fs.PathError
	switch {
	case errors.As(err, &fault):
		return nil, fmt.Errorf("reading the kubeconfig: %w", fault)
	case err != nil:
		// The parser's message may quote credentials.
		return nil, fmt.Errorf("%s is no kubeconfig", o.kubeconfig)
	}
	if missing := o.missing(loaded); len(missing) > 0 || len(o.contexts) == 0 {
		existing := strings.Join(slices.Sorted(maps.Keys(loaded.Contexts)), ", ")
		if len(missing) == 0 {
			return nil, fmt.Errorf("--kubeconfig needs --contexts; %s has: %s", o.kubeconfig, existing)
		}
		return nil, fmt.Errorf("%s has no context %s; it has: %s", o.kubeconfig, quoted(missing), existing)
	}
	configs := map[string]*rest.Config{}
	for _, name := range o.contexts {
		config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, name, nil, &rules).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("context %q of %s: %w", name, o.kubeconfig, err)
		}
		configs[name] = config
	}
	return configs, nil
}

// missing lists the contexts that were asked for and are not there.
func (o options) missing(loaded *clientcmdapi.Config) []string {
	return slices.DeleteFunc(slices.Clone(o.contexts), func(name string) bool { return loaded.Contexts[name] != nil })
}

// allReconciled waits until all members are connected, and returns the condition that each ConfigMap that they hold then
// was reconciled.
func (o options) allReconciled(ctx context.Context, s *scene) (condition, error) {
	ready, complete := make([]condition, len(o.contexts)), make([]condition, len(o.contexts))
	for i, name := range o.contexts {
		ready[i] = is(fleet.ClusterName(name), fleet.Ready)
	}
	if err := s.wait(ctx, all(ready...)); err != nil {
		return condition{}, err
	}
	for i, context := range o.contexts {
		name := fleet.ClusterName(context)
		objects, err := s.configMaps(ctx, name)
		if err != nil {
			return condition{}, err
		}
		complete[i] = condition{
			what: fmt.Sprintf("all %d ConfigMaps of %s are reconciled", len(objects), name),
			holds: func(ms members) bool {
				return !slices.ContainsFunc(objects, func(key client.ObjectKey) bool {
					_, seen := ms[name].objects[key]
					return !seen
				})
			},
		}
	}
	return all(complete...), nil
}

// configMaps lists the ConfigMaps of a member, from its cache.
func (s *scene) configMaps(ctx context.Context, name fleet.ClusterName) ([]client.ObjectKey, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	engagement, err := s.fleet.Engagement(name)
	if err != nil {
		return nil, err
	}
	var list corev1.ConfigMapList
	if err := engagement.Cluster().GetCache().List(ctx, &list); err != nil {
		return nil, err
	}
	keys := make([]client.ObjectKey, len(list.Items))
	for i := range list.Items {
		keys[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return keys, nil
}

func quoted(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}
