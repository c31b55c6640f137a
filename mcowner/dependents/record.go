package dependents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// record is what an owner has in its metadata about its dependents: that there may be some, by a finalizer, and in which
// clusters, by an annotation with their names and one with their identities. A cluster is in it from before the first
// dependent is created there until the last one is known to be gone, or on its way.
type record struct{ finalizer, annotation, identities string }

// newRecord returns the record of a controller. The names hold those of the fleet and the controller: another one on the
// same owners has its own.
func newRecord(fleet, controller string) record {
	domain := controller + "." + fleet + ".fleet-runtime.dev"
	return record{finalizer: domain + "/dependents", annotation: domain + "/placed-in", identities: domain + "/identities"}
}

// site is a cluster in which an owner may have dependents: what it is called, and which it is, if that is known.
type site struct {
	name     mcreconcile.ClusterName
	identity types.UID
}

// byName returns the clusters that have each name: more than one if the name has led to several in turn, the oldest first.
func byName(sites []site) map[mcreconcile.ClusterName][]site {
	named := make(map[mcreconcile.ClusterName][]site, len(sites))
	for _, s := range sites {
		named[s.name] = append(named[s.name], s)
	}
	return named
}

// namesOf returns the names of clusters, ordered, each once.
func namesOf(sites []site) []mcreconcile.ClusterName {
	names := make([]mcreconcile.ClusterName, len(sites))
	for i, s := range sites {
		names[i] = s.name
	}
	return union(names, nil)
}

// exists reports whether the owner may have dependents.
func (r record) exists(owner client.Object) bool {
	_, annotated := owner.GetAnnotations()[r.annotation]
	return annotated || controllerutil.ContainsFinalizer(owner, r.finalizer)
}

// read returns the clusters in which there may be dependents. The answer is false if somebody has written nonsense in
// their place: then there may be dependents anywhere. Identities that cannot be read are not known, and of a name the last
// are read, see mostSites: somebody has written the others.
func (r record) read(owner client.Object) (sites []site, ok bool) {
	content, ok := owner.GetAnnotations()[r.annotation]
	if !ok {
		return nil, true
	}
	var names []mcreconcile.ClusterName
	if json.Unmarshal([]byte(content), &names) != nil {
		return nil, false
	}
	var known map[mcreconcile.ClusterName][]types.UID
	if json.Unmarshal([]byte(owner.GetAnnotations()[r.identities]), &known) != nil {
		known = nil
	}
	for _, name := range union(names, nil) {
		identities := slices.DeleteFunc(known[name], func(identity types.UID) bool { return identity == "" })
		identities = identities[max(0, len(identities)-mostSites):]
		if len(identities) == 0 {
			sites = append(sites, site{name: name})
		}
		for _, identity := range identities {
			sites = append(sites, site{name, identity})
		}
	}
	return sites, true
}

// set changes the owner's metadata: it may have dependents in these clusters, and keeps the finalizer if held.
func (r record) set(owner client.Object, sites []site, held bool) {
	if held {
		controllerutil.AddFinalizer(owner, r.finalizer)
	} else {
		controllerutil.RemoveFinalizer(owner, r.finalizer)
	}
	known := map[mcreconcile.ClusterName][]types.UID{}
	for _, s := range sites {
		if s.identity != "" && !slices.Contains(known[s.name], s.identity) {
			known[s.name] = append(known[s.name], s.identity)
		}
	}
	names := namesOf(sites)
	annotations := withJSON(owner.GetAnnotations(), r.annotation, names, len(names) > 0)
	owner.SetAnnotations(withJSON(annotations, r.identities, known, len(known) > 0))
}

// withJSON returns annotations with a value as JSON, or without it if it is not to be there.
func withJSON(annotations map[string]string, key string, value any, there bool) map[string]string {
	if !there {
		return withoutKey(annotations, key)
	}
	content, _ := json.Marshal(value) //nolint:errchkjson // names and identities always have a JSON
	return withKey(annotations, key, string(content))
}

// store changes the owner's metadata and stores that, unless it changes nothing. It returns the owner as stored. If the
// owner was changed meanwhile, the error is a conflict.
func store(ctx context.Context, to client.Client, owner client.Object, fieldManager string, change func(client.Object)) (client.Object, error) {
	changed := owner.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	change(changed)
	if sameMetadata(owner, changed) {
		return owner, nil
	}
	patch := client.MergeFromWithOptions(owner, client.MergeFromWithOptimisticLock{})
	if err := to.Patch(ctx, changed, patch, client.FieldOwner(fieldManager)); err != nil {
		return nil, fmt.Errorf("noting on the owner where its dependents are: %w", err)
	}
	return changed, nil
}

func sameMetadata(a, b client.Object) bool {
	return maps.Equal(a.GetAnnotations(), b.GetAnnotations()) && slices.Equal(a.GetFinalizers(), b.GetFinalizers())
}

func withKey(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func withoutKey(m map[string]string, key string) map[string]string {
	m = maps.Clone(m)
	delete(m, key)
	return m
}
