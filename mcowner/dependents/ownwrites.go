package dependents

import (
	"encoding/json"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// mostWritten is how many writes to an owner are remembered: their events may be a little late.
const mostWritten = 3

// ownWrite is a write to an owner: what it is to become, while the answer is awaited, and from then on the version that it got.
// Contents alone would not do: somebody may change an owner, and back again.
type ownWrite struct {
	content client.Object
	version string
}

// writing notes how an owner is about to be written, so that the event is known for one's own, even if it is sooner than the
// answer. What it returns is called with that, and says whether the owner is to be planned anew: an event was taken for one's own,
// and the answer does not say what is stored.
func (l *ledger) writing(in mcreconcile.ClusterName, owner client.Object) (answered func(stored client.Object, err error) (missed bool)) {
	of, w := origin{in, owner.GetUID()}, &ownWrite{content: bare(readAgain(owner))}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[of] = append(l.written[of], w)
	l.written[of] = l.written[of][max(0, len(l.written[of])-mostWritten):]
	return func(stored client.Object, err error) (missed bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case w.version != "": // an event was here before
			return err != nil || stored.GetResourceVersion() != w.version
		case err == nil && equality.Semantic.DeepEqual(w.content, bare(stored)):
			w.content, w.version = nil, stored.GetResourceVersion()
		case l.written[of] != nil: // it is more than was written, or nobody knows
			l.written[of] = slices.DeleteFunc(l.written[of], func(one *ownWrite) bool { return one == w })
			if len(l.written[of]) == 0 { // its owner may be forgotten
				delete(l.written, of)
			}
		}
		return false
	}
}

// isOwn reports whether an owner is as it was written.
func (l *ledger) isOwn(in mcreconcile.ClusterName, owner client.Object) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.written[origin{in, owner.GetUID()}], func(w *ownWrite) bool {
		if w.version == "" && equality.Semantic.DeepEqual(w.content, bare(owner)) {
			w.content, w.version = nil, owner.GetResourceVersion()
		}
		return w.version == owner.GetResourceVersion()
	})
}

// predicate lets events on owners of a cluster pass but for those of the controller's own writes, which change nothing about what is desired.
// With a thousand targets, each would make a thousand placements look in vain.
func (l *ledger) predicate(in mcreconcile.ClusterName) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		resync := e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion()
		restored := isOlder(e.ObjectNew, e.ObjectOld) // it may be as it was written before
		return resync || restored || !l.isOwn(in, e.ObjectNew)
	}}
}

// readAgain returns an object as it is once it was written and read: times, for one thing, lose what is below a second.
func readAgain(obj client.Object) client.Object {
	text, err := json.Marshal(obj)
	if err != nil {
		return obj // which cannot be written either
	}
	stored := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object) //nolint:forcetypeassert // it has the type of obj
	if err := json.Unmarshal(text, stored); err != nil {
		return obj
	}
	return stored
}

// bare returns an object without what the API server counts, and without its status: that may be stored otherwise than it was written, each time,
// as where the API server prunes fields, or has defaults.
func bare(obj client.Object) client.Object {
	obj = obj.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
	obj.SetResourceVersion("")
	obj.SetManagedFields(nil)
	obj.SetGeneration(0)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // which some readers leave out
	if u, is := obj.(*unstructured.Unstructured); is {
		unstructured.RemoveNestedField(u.Object, "status")
	} else if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		status.SetZero()
	}
	return obj
}
