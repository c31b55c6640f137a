// Package metadata finds metadata of unstructured objects that is not of Kubernetes' types.
package metadata

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// longestKey is how many bytes the key of a label or an annotation has at most.
const longestKey = 253 + 1 + 63

// Check returns an error about metadata of an unstructured object, whose values have the Go types of JSON's, that is not of its type. GetAnnotations
// and its like take such a field for absent as a whole: what the other annotations ask for would not be done. The error quotes no values.
func Check(obj client.Object) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u.Object["metadata"] == nil {
		return nil
	}
	all, ok := u.Object["metadata"].(map[string]any)
	if !ok {
		return errors.New("metadata is no map")
	}
	for _, name := range []string{"name", "generateName", "namespace"} {
		if value := all[name]; value != nil && !isText(value) {
			return fmt.Errorf("metadata.%s is no text", name)
		}
	}
	return errors.Join(
		texts("metadata.labels", all["labels"]), texts("metadata.annotations", all["annotations"]),
		list("metadata.finalizers", all["finalizers"], text),
		list("metadata.ownerReferences", all["ownerReferences"], ownerReference))
}

func isText(value any) bool {
	_, ok := value.(string)
	return ok
}

func text(path string, value any) error {
	if !isText(value) {
		return fmt.Errorf("%s is no text", path)
	}
	return nil
}

// texts checks a map, which may be absent, and in which null is an empty text. Of what is wrong, the first key is told, so that the error is the
// same each time.
func texts(path string, value any) error {
	all, ok := value.(map[string]any)
	if value != nil && !ok {
		return fmt.Errorf("%s is no map", path)
	}
	first, wrong := "", false
	for key, value := range all {
		if value != nil && !isText(value) && (!wrong || key < first) {
			first, wrong = key, true
		}
	}
	if !wrong {
		return nil
	}
	return fmt.Errorf("%s.%.*s is no text", path, longestKey, first)
}

// list checks the elements of a list, which may be absent.
func list(path string, value any, check func(path string, value any) error) error {
	all, ok := value.([]any)
	if value != nil && !ok {
		return fmt.Errorf("%s is no list", path)
	}
	for i, value := range all {
		if err := check(fmt.Sprintf("%s[%d]", path, i), value); err != nil {
			return err
		}
	}
	return nil
}

func ownerReference(path string, value any) error {
	all, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is no map", path)
	}
	for _, name := range []string{"apiVersion", "kind", "name", "uid"} {
		if value := all[name]; value != nil && !isText(value) {
			return fmt.Errorf("%s.%s is no text", path, name)
		}
	}
	for _, name := range []string{"controller", "blockOwnerDeletion"} {
		if _, ok := all[name].(bool); all[name] != nil && !ok {
			return fmt.Errorf("%s.%s is neither true nor false", path, name)
		}
	}
	return nil
}
