package dependents

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// mostWritten is how many writes to an owner are remembered: their events may be a little late.
const mostWritten = 3

// wrote notes how an owner is about to be written, so that the event is known for one's own.
func (l *ledger) wrote(owner client.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := owner.GetUID()
	l.written[uid] = append(l.written[uid], bare(owner))
	l.written[uid] = l.written[uid][max(0, len(l.written[uid])-mostWritten):]
}

// isOwn reports whether an owner is as it was written.
func (l *ledger) isOwn(owner client.Object) bool {
	l.mu.Lock()
	written := slices.Clone(l.written[owner.GetUID()])
	l.mu.Unlock()
	now := bare(owner)
	return slices.ContainsFunc(written, func(w client.Object) bool { return equality.Semantic.DeepEqual(w, now) })
}

// predicate lets events on owners pass but for those of the controller's own writes, which change nothing about what is desired.
// With a thousand targets, each would make a thousand placements look in vain.
func (l *ledger) predicate() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		resync := e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
		return resync || !l.isOwn(e.ObjectNew)
	}}
}

// bare returns an object without what the API server counts.
func bare(obj client.Object) client.Object {
	obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	obj.SetResourceVersion("")
	obj.SetManagedFields(nil)
	obj.SetGeneration(0)
	return obj
}
