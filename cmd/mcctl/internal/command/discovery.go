package command

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// namespaced returns the kinds that a cluster has in namespaces and can list.
func namespaced(config *rest.Config) ([]schema.GroupVersionKind, error) {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := c.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	var kinds []schema.GroupVersionKind
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") {
				kinds = append(kinds, group.WithKind(r.Kind))
			}
		}
	}
	return kinds, nil
}
