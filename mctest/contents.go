package mctest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// errChanged says that an object that belongs to a new control plane is no longer what it was.
var errChanged = errors.New("was changed or removed")

// automanagedLabel marks the APIServices that the API server itself makes, and removes, with its groups and with CRDs.
const automanagedLabel = "kube-aggregator.kubernetes.io/automanaged"

// contents are all objects of a control plane, and the resources that it serves.
type contents struct {
	resources []schema.GroupVersionResource
	objects   map[object]metav1.ObjectMeta
}

// object is one object of any kind.
type object struct {
	resource schema.GroupVersionResource
	types.NamespacedName
}

func (o object) String() string {
	return o.resource.GroupResource().String() + " " + o.NamespacedName.String()
}

// list reads the contents of a control plane, in about 60 requests that take a millisecond each.
func list(ctx context.Context, resources discovery.DiscoveryInterface, objects metadata.Interface) (*contents, error) {
	// The groups of an aggregated API server that is gone cannot be discovered. What it serves is not stored here.
	lists, err := discovery.ServerPreferredResources(resources)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("discovering what is served: %w", err)
	}
	found := &contents{objects: map[object]metav1.ObjectMeta{}}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		version, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			found.resources = append(found.resources, version.WithResource(r.Name))
		}
	}
	slices.SortFunc(found.resources, func(a, b schema.GroupVersionResource) int { return cmp.Compare(a.String(), b.String()) })

	for _, resource := range found.resources {
		items, err := objects.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			continue // its CRD is being removed
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.GroupResource(), err)
		}
		for _, item := range items.Items {
			item.ManagedFields = nil
			found.objects[object{resource, types.NamespacedName{Namespace: item.Namespace, Name: item.Name}}] = item.ObjectMeta
		}
	}
	return found, nil
}

// intact returns an error that wraps [errChanged] unless now has every object of c as it was.
func (c *contents) intact(now *contents) error {
	for o, before := range c.objects {
		if after, ok := now.objects[o]; !ok || after.ResourceVersion != before.ResourceVersion {
			return fmt.Errorf("%s %w", o, errChanged)
		}
	}
	return nil
}

// beyond lists the objects that c has and pristine lacks, without those that the API server itself will remove.
func (c *contents) beyond(pristine *contents) []object {
	var extra []object
	for o, meta := range c.objects {
		if _, ok := pristine.objects[o]; !ok && meta.Labels[automanagedLabel] == "" {
			extra = append(extra, o)
		}
	}
	return extra
}
