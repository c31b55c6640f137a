package dependents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// record is what an owner has in its metadata about its dependents: that there may be some, by a finalizer, and in which
// clusters, by an annotation. A cluster is in it from before the first dependent is created there until the last one is
// known to be gone, or on its way.
type record struct{ finalizer, annotation string }

// newRecord returns the record of a controller. The names hold those of the fleet and the controller: another one on the
// same owners has its own.
func newRecord(fleet, controller string) record {
	domain := controller + "." + fleet + ".fleet-runtime.dev"
	return record{finalizer: domain + "/dependents", annotation: domain + "/placed-in"}
}

// exists reports whether the owner may have dependents.
func (r record) exists(owner client.Object) bool {
	_, annotated := owner.GetAnnotations()[r.annotation]
	return annotated || controllerutil.ContainsFinalizer(owner, r.finalizer)
}

// read returns the clusters in which there may be dependents. The answer is false if somebody has written nonsense in
// their place: then there may be dependents anywhere.
func (r record) read(owner client.Object) (clusters []mcreconcile.ClusterName, ok bool) {
	content, ok := owner.GetAnnotations()[r.annotation]
	if !ok {
		return nil, true
	}
	if json.Unmarshal([]byte(content), &clusters) != nil {
		return nil, false
	}
	return clusters, true
}

// set changes the owner's metadata: it may have dependents in these clusters, and keeps the finalizer if held.
func (r record) set(owner client.Object, clusters []mcreconcile.ClusterName, held bool) {
	if held {
		controllerutil.AddFinalizer(owner, r.finalizer)
	} else {
		controllerutil.RemoveFinalizer(owner, r.finalizer)
	}
	if len(clusters) == 0 {
		owner.SetAnnotations(withoutKey(owner.GetAnnotations(), r.annotation))
		return
	}
	clusters = slices.Clone(clusters)
	slices.Sort(clusters)
	content, _ := json.Marshal(clusters) //nolint:errchkjson // a list of strings always has a JSON
	owner.SetAnnotations(withKey(owner.GetAnnotations(), r.annotation, string(content)))
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
