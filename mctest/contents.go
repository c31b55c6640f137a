package mctest

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// errChanged says that an object that belongs to a new control plane is no longer what it was.
var errChanged = errors.New("was changed or removed")

// automanagedLabel marks the APIServices that the API server itself makes, and removes, with its groups and with CRDs.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// beyond lists the objects that c has and pristine lacks, without those that the API server itself will remove. c was read
// since pristine. An error that wraps [errChanged] says that an object of pristine is no longer what it was.
func (c *contents) beyond(pristine *contents) (extra []object, err error) {
	left := c.count
	for _, o := range c.written {
		switch {
		case o.Name == "":
			continue // what an API server keeps for itself: that it is there, and the ports that services have
		case o.created <= pristine.revision:
			return nil, fmt.Errorf("%s %w", o, errChanged)
		case o.Labels[automanagedLabel] == "":
			extra = append(extra, o)
		}
		left--
	}
	if left < pristine.count {
		return nil, fmt.Errorf("an object that every control plane has %w", errChanged)
	}
	return extra, nil
}

// resources are what a control plane serves, by kind.
type resources map[schema.GroupKind]schema.GroupVersionResource

// discover asks for all resources whose objects can be listed and deleted.
func discover(from discovery.DiscoveryInterface) (resources, error) {
	// The groups of an aggregated API server that is gone cannot be discovered. What it serves is not stored here.
	lists, err := discovery.ServerPreferredResources(from)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("discovering what is served: %w", err)
	}
	found := resources{}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			found[schema.GroupKind{Group: version.Group, Kind: r.Kind}] = version.WithResource(r.Name)
		}
	}
	return found, nil
}
