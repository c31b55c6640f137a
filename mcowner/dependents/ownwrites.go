package dependents

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
)

// wrote notes the status that is about to be written to an owner, so that its event is known for one's own.
func (l *ledger) wrote(owner client.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[owner.GetUID()] = owner
}

// predicate lets events on owners pass but for those of the controller's own writes, which change nothing about what is desired.
// With a thousand targets, each would make a thousand placements look in vain.
func (l *ledger) predicate(keys record.Keys) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		now := bare(e.ObjectNew, keys)
		if equality.Semantic.DeepEqual(bare(e.ObjectOld, keys), now) {
			return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() // a resync is no write
		}
		l.mu.Lock()
		written := l.written[e.ObjectNew.GetUID()]
		l.mu.Unlock()
		return written == nil || !equality.Semantic.DeepEqual(bare(written, keys), now)
	}}
}

// bare returns an object without the controller's record, and without what the API server counts.
func bare(obj client.Object, keys record.Keys) client.Object {
	obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	obj.SetResourceVersion("")
	obj.SetManagedFields(nil)
	obj.SetGeneration(0)
	controllerutil.RemoveFinalizer(obj, keys.Finalizer)
	annotations := maps.Clone(obj.GetAnnotations())
	for _, key := range []string{keys.Clusters, keys.Identities, keys.Kinds, keys.GivenUp} {
		delete(annotations, key)
	}
	obj.SetAnnotations(annotations)
	return obj
}
