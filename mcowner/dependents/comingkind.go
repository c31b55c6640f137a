package dependents

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

const (
	// mostComing is for how long a kind may still be not served once its CustomResourceDefinition is ready.
	mostComing = 30 * time.Second
	// comingPause is after which time it is looked for again.
	comingPause = 2 * time.Second
)

// comes returns why the kind of an object cannot be read, or written in its version. One that is not served is waited for if the owner brings its
// CustomResourceDefinition too: until that is ready, and for a while then, as discovery follows it.
func (p *placement) comes(w wanted, wants []wanted, unknown error) error {
	kind, key := w.kind.GroupKind(), p.keyOf(w.kind, w.obj)
	i := slices.IndexFunc(wants, func(crd wanted) bool {
		return crd.wave <= w.wave && crd.kind.GroupKind() == crdKind && crd.brings == kind
	})
	if i >= 0 && unknown == nil {
		unknown = p.lacksVersion(w)
	}
	switch {
	case i < 0 || !isUnserved(unknown):
		p.o.served(key)
		return unknown
	case !slices.Contains(p.ready, wants[i].obj.GetName()):
		p.o.served(key)
	case p.o.unservedFor(key) >= p.engine.cfg.paces.orDefaults().coming:
		return unknown
	default:
		p.coming = true
	}
	return fmt.Errorf("%s is not served yet by %s, and its CustomResourceDefinition is desired there: %w: %w",
		kind, remote.ClusterText(p.at.Name()), ErrWaiting, unknown)
}

// lacksVersion returns an error if the cluster does not serve the version in which an object is desired. It may be read in another one.
func (p *placement) lacksVersion(w wanted) error {
	gvk, err := apiutil.GVKForObject(w.obj, p.engine.access.Manager.GetScheme())
	if err != nil {
		return nil //nolint:nilerr // it is told once it is to be written
	}
	_, err = p.engine.access.Mapper(p.at).RESTMapping(gvk.GroupKind(), gvk.Version)
	if !isUnserved(err) {
		return nil
	}
	return err
}

// noteReady notes that a CustomResourceDefinition is ready. What is desired may hang on whether its kinds are served, and that they are not was
// remembered.
func (p *placement) noteReady(w wanted, result ObjectResult) {
	if w.kind.GroupKind() != crdKind || result.Err != nil || result.Object == nil || unready(w.kind, result.Object) != nil {
		return
	}
	p.ready = append(p.ready, w.obj.GetName())
	for _, gvk := range definedBy(result.Object) {
		p.outdated = p.engine.access.NoteComing(p.at, gvk) || p.outdated
	}
}

// definedBy returns the kind of a CustomResourceDefinition, without a version first, and in each that it has served.
func definedBy(crd client.Object) []schema.GroupVersionKind {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return []schema.GroupVersionKind{{}}
	}
	group, _, _ := unstructured.NestedString(content, "spec", "group")
	name, _, _ := unstructured.NestedString(content, "spec", "names", "kind")
	served, _, _ := unstructured.NestedFieldNoCopy(content, "spec", "versions") // with schemas that are large
	versions, _ := served.([]any)
	all := []schema.GroupVersionKind{{Group: group, Kind: name}}
	for _, v := range versions {
		if v, ok := v.(map[string]any); ok && v["served"] == true {
			version, _ := v["name"].(string)
			all = append(all, schema.GroupVersionKind{Group: group, Version: version, Kind: name})
		}
	}
	return all
}

// unservedFor returns for how long it is known that the kind of an object is not served although it should be, in the object's version.
func (o *ownerState) unservedFor(key dependentKey) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partLocked(key.cluster)
	if _, is := p.unserved[key]; !is {
		if p.unserved == nil {
			p.unserved = map[dependentKey]time.Time{}
		}
		p.unserved[key] = time.Now()
	}
	return time.Since(p.unserved[key])
}

// served notes that the kind of an object is served, or need not be.
func (o *ownerState) served(key dependentKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.partLocked(key.cluster).unserved, key)
}
