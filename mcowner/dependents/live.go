package dependents

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
)

// hash is half of a SHA-256, which is enough to tell states of one object apart.
type hash [sha256.Size / 2]byte

func hashOf(content ...[]byte) (h hash) {
	sum := sha256.Sum256(bytes.Join(content, nil))
	copy(h[:], sum[:])
	return h
}

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// liveHash returns a hash of what matters of an object as it is: which fields are the manager's. If somebody changes the value
// of such a field, it is theirs, so values need not be looked at. Where the cache does not keep whose fields are, all of the
// content counts, but for the status and what the API server counts.
func liveHash(obj client.Object, manager string) hash {
	if own := ownFields(obj, manager); !own.Empty() {
		if fields, err := own.ToJSON(); err == nil { // the order of what is read is not always the same
			return hashOf(fields)
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return hash{} // which never is that of anything
	}
	unstructured.RemoveNestedField(content, "status")
	for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	there, err := json.Marshal(content)
	if err != nil {
		return hash{}
	}
	return hashOf(there)
}

// ownFields returns the fields that are the manager's: those that it has applied, or created. It is empty if that is not known.
func ownFields(obj client.Object, manager string) *fieldpath.Set {
	own := &fieldpath.Set{}
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager != manager || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if set.FromJSON(bytes.NewReader(entry.FieldsV1.Raw)) != nil {
			return &fieldpath.Set{}
		}
		own = own.Union(set)
	}
	return own
}

// isAsApplied reports whether an object was written from this very configuration, and nobody has changed any of its fields since.
// So nothing needs to be applied after a restart.
func isAsApplied(obj client.Object, config *unstructured.Unstructured, manager string) bool {
	if obj.GetAnnotations()[mcowner.DesiredAnnotation] != config.GetAnnotations()[mcowner.DesiredAnnotation] {
		return false
	}
	own := ownFields(obj, manager)
	if own.Empty() {
		return false
	}
	for field, value := range config.Object {
		switch field {
		case "apiVersion", "kind":
		case "metadata":
			metadata := map[string]any{}
			for _, key := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
				if v, ok := value.(map[string]any)[key]; ok {
					metadata[key] = v
				}
			}
			if !owns(own, "metadata", metadata) {
				return false
			}
		default:
			if !owns(own, field, value) {
				return false
			}
		}
	}
	return true
}

// owns reports whether a field is in a set with all that the value has below it.
func owns(set *fieldpath.Set, field string, value any) bool {
	if isEmpty(value) {
		return true // the API server may leave it out
	}
	element := fieldpath.FieldNameElement(field)
	below, ok := set.Children.Get(element)
	if !ok {
		return set.Members.Has(element) // it is one, be it a value, or a list that is replaced as a whole
	}
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			if !owns(below, key, v) {
				return false
			}
		}
		return true
	case []any:
		for _, item := range value {
			if !ownsItem(below, item) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return value == nil
	}
}

// ownsItem reports whether an item of a list is in a set, by its keys or its value.
func ownsItem(set *fieldpath.Set, item any) bool {
	content, isMap := item.(map[string]any)
	found := false
	set.Members.Iterate(func(e fieldpath.PathElement) {
		found = found || !isMap && e.Value != nil && reflect.DeepEqual((*e.Value).Unstructured(), item)
	})
	set.Children.Iterate(func(e fieldpath.PathElement) {
		if found || !isMap || e.Key == nil || !hasKeys(content, e) {
			return
		}
		below, _ := set.Children.Get(e)
		for key, v := range content {
			if !owns(below, key, v) {
				return
			}
		}
		found = true
	})
	return found
}

// hasKeys reports whether an item has the keys of an element. Those that it leaves open are defaults.
func hasKeys(item map[string]any, e fieldpath.PathElement) bool {
	for _, key := range *e.Key {
		v, ok := item[key.Name]
		if ok && !reflect.DeepEqual(v, key.Value.Unstructured()) {
			return false
		}
	}
	return true
}
