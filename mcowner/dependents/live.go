package dependents

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hash is half of a SHA-256, which is enough to tell states of one object apart.
type hash [sha256.Size / 2]byte

func hashOf(content []byte) (h hash) {
	sum := sha256.Sum256(content)
	copy(h[:], sum[:])
	return h
}

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// liveHash returns a hash of what matters of an object as it is: not of its status, nor of what the API server counts. Where
// that counts the changes of a spec, by the generation, the spec need not be looked at. A generation without a spec may count
// nothing: that of a PriorityClass is always 1.
func liveHash(obj client.Object) (hash, error) {
	if obj.GetGeneration() > 0 && hasSpec(obj) {
		content, err := json.Marshal(metav1.ObjectMeta{
			Generation: obj.GetGeneration(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(),
			OwnerReferences: obj.GetOwnerReferences(), Finalizers: obj.GetFinalizers(),
		})
		return hashOf(content), err
	}
	content, err := contentOf(obj)
	if err != nil {
		return hash{}, err
	}
	unstructured.RemoveNestedField(content, "status")
	for _, field := range []string{"resourceVersion", "managedFields"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	there, err := json.Marshal(content)
	return hashOf(there), err
}

// hasSpec reports whether an object has a spec, with a Go type or without.
func hasSpec(obj client.Object) bool {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		_, has := u.Object["spec"]
		return has
	}
	return reflect.ValueOf(obj).Elem().FieldByName("Spec").IsValid()
}

// contentOf returns an object as a map that may be changed at its top and in its metadata.
func contentOf(obj client.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// isAsApplied reports whether an object was written from this very configuration, and has all of it still. So nothing needs to
// be applied after a restart. Where that is not certain, the answer is false: a list, or what selects something, has more than was written, or the API
// server writes a quantity in another way. It may be a version then, which 1.1 and 1.10 are two of.
func isAsApplied(obj client.Object, config *unstructured.Unstructured) bool {
	if !isSealedAs(obj, config) {
		return false
	}
	live, err := contentOf(obj)
	if err != nil {
		return false
	}
	for field, want := range config.Object {
		if field != "apiVersion" && field != "kind" && !contains(live[field], want) {
			return false
		}
	}
	return true
}

// contains reports whether a value has all that is wanted of it.
func contains(live, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		there, ok := live.(map[string]any)
		if !ok {
			return isEmpty(want) // which the API server may leave out
		}
		for key, value := range want {
			if !contains(there[key], value) || selects(key) && there[key] != nil && !sameJSON(there[key], value) {
				return false
			}
		}
		return true
	case []any:
		there, ok := live.([]any)
		if len(want) == 0 {
			return !ok || len(there) == 0
		}
		if !ok || len(there) != len(want) {
			return false
		}
		for i, value := range want {
			if !contains(there[i], value) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(live, want) || sameJSON(live, want)
	}
}

// selects reports whether a field chooses something, such as the peers of a NetworkPolicy. API servers add nothing to one, and what
// others have added makes another choice.
func selects(field string) bool {
	return field == "selector" || field == "from" || field == "to" || strings.HasSuffix(field, "Selector")
}

// isEmpty reports whether a value is nothing but empty values.
func isEmpty(value any) bool {
	content, ok := value.(map[string]any)
	if !ok {
		return false
	}
	for _, v := range content {
		if !isEmpty(v) {
			return false
		}
	}
	return true
}

// sameJSON reports whether two values are the same, with numbers that were read as whatever type.
func sameJSON(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y)
}
