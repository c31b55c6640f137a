package dependents

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jsonutil "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deepest is how many values may be in one another. An API server takes no more, and what contains itself has no end.
const deepest = 10_000

// jsonValues returns an object whose values have the Go types of JSON's, as what reads and copies an unstructured object needs: programs also
// write int, []string or map[string]string. One that has them is returned itself. Beside an error it returns what the object is called.
func jsonValues(obj client.Object) (client.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || hasJSONValues(u.Object, deepest) {
		return obj, nil
	}
	converted := &unstructured.Unstructured{}
	content, err := json.Marshal(u.Object)
	if err == nil {
		err = jsonutil.Unmarshal(content, &converted.Object)
	}
	if err == nil {
		return converted, nil
	}
	converted.Object = nil
	converted.SetGroupVersionKind(u.GroupVersionKind())
	converted.SetNamespace(u.GetNamespace())
	converted.SetName(u.GetName())
	return converted, fmt.Errorf("its content is no JSON: %w", err)
}

func hasJSONValues(value any, depth int) bool {
	if depth == 0 {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			if !hasJSONValues(v, depth-1) {
				return false
			}
		}
		return true
	case []any:
		for _, v := range value {
			if !hasJSONValues(v, depth-1) {
				return false
			}
		}
		return true
	case nil, string, bool, int64, float64:
		return true
	default:
		return false
	}
}
