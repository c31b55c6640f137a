package command

import (
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// errNoCore says that a cluster has not named Kubernetes' own kinds: the client takes a page of 404 for none.
var errNoCore = errors.New("it does not name the kinds of the core API")

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
	if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "v1" }) {
		return nil, errNoCore
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
