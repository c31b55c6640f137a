package dependents

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// OnlyLabelled limits the caches of members to the dependents of an installation, by their label: a thousand members need not cache
// each Secret there is. It is for fleet.Options.ClusterOptions.
//
// Kinds that are read or watched for another purpose must be excepted, such as those of owners in members. The manager's own
// cache options hold too: what they leave out is left out. For a kind that is excepted they hold alone, but for the labels that
// they set for single namespaces.
//
// Where an object that is not labelled has the place of a dependent, nothing tells when it goes: it is looked every 15 to 20
// seconds. A dependent that loses the label gets it back at once.
func OnlyLabelled(fleet string, except ...client.Object) cluster.Option {
	return func(o *cluster.Options) {
		l := limiting{labelled: remote.OfFleet(fleet), except: except, options: o}
		l.limit(&o.Cache)
	}
}

// limiting limits the options of a cache.
type limiting struct {
	labelled labels.Selector
	except   []client.Object
	options  *cluster.Options
}

// limit limits the options. The maps in them may be those of other members, too, so they are not changed.
func (l limiting) limit(o *cache.Options) {
	if o.DefaultTransform == nil {
		o.DefaultTransform = cache.TransformStripManagedFields()
	}
	usual := o.DefaultLabelSelector
	if usual == nil {
		usual = labels.Everything()
	}
	o.DefaultLabelSelector = l.and(usual)
	o.DefaultNamespaces = l.namespaces(o.DefaultNamespaces)
	byObject := make(map[client.Object]cache.ByObject, len(o.ByObject)+len(l.except))
	for obj, of := range o.ByObject {
		switch {
		case l.isExcepted(obj):
			if of.Label == nil {
				of.Label = usual
			}
		default:
			if of.Label != nil {
				of.Label = l.and(of.Label)
			}
			of.Namespaces = l.namespaces(of.Namespaces)
		}
		byObject[obj] = of
	}
	for _, obj := range l.except {
		has := slices.ContainsFunc(slices.Collect(maps.Keys(byObject)), func(other client.Object) bool { return l.same(obj, other) })
		if !has {
			byObject[obj] = cache.ByObject{Label: usual}
		}
	}
	o.ByObject = byObject
}

// namespaces returns the options of single namespaces with the limit.
func (l limiting) namespaces(before map[string]cache.Config) map[string]cache.Config {
	limited := maps.Clone(before)
	for namespace, of := range limited {
		if of.LabelSelector != nil { // or it is the usual one
			of.LabelSelector = l.and(of.LabelSelector)
			limited[namespace] = of
		}
	}
	return limited
}

// and returns a selector with the limit. One that selects nothing stays as it is.
func (l limiting) and(selector labels.Selector) labels.Selector {
	requirements, _ := l.labelled.Requirements()
	return selector.Add(requirements...)
}

func (l limiting) isExcepted(obj client.Object) bool {
	return slices.ContainsFunc(l.except, func(excepted client.Object) bool { return l.same(obj, excepted) })
}

// same reports whether objects are of one kind. What is wrong with a kind that is not known is for the cache to say.
func (l limiting) same(a, b client.Object) bool {
	known := l.options.Scheme
	if known == nil {
		known = scheme.Scheme
	}
	one, err := apiutil.GVKForObject(a, known)
	if err != nil {
		return a == b
	}
	other, err := apiutil.GVKForObject(b, known)
	return err == nil && one == other
}
