package main

import (
	"encoding/json"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// veil is what a Secret holds, which is not for all who may write Replicators, or read their status. Overrides see a text in the place of each value,
// and may write others there. So nothing that they do with it, in whatever way they come to it, puts it into a name, a label or an error.
type veil struct {
	held map[string]map[string]any // values, by the field and by the text
}

// heldIn are the fields of a Secret that hold something.
func heldIn() []string { return []string{"data", "stringData"} }

// isSecret reports whether an object is a Secret. It is asked before any override.
func isSecret(obj *unstructured.Unstructured) bool {
	return obj.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// veiled returns an object as overrides see it, and what they do not see: nothing of what is no Secret.
func veiled(obj *unstructured.Unstructured) (*unstructured.Unstructured, *veil) {
	if !isSecret(obj) {
		return obj, nil
	}
	seen, v := maps.Clone(obj.Object), &veil{held: map[string]map[string]any{}}
	for _, field := range heldIn() {
		if value, has := seen[field]; has {
			seen[field] = v.hide(field, value)
		}
	}
	return &unstructured.Unstructured{Object: seen}, v
}

// hide returns what is shown in the place of a field's value.
func (v *veil) hide(field string, value any) any {
	if v.held[field] == nil {
		v.held[field] = map[string]any{}
	}
	values, ok := value.(map[string]any)
	if !ok {
		text := hidden(field)
		v.held[field][text] = value
		return text
	}
	shown := make(map[string]any, len(values))
	for key, value := range values {
		text := hidden(field + "." + key)
		v.held[field][text], shown[key] = value, text
	}
	return shown
}

// hidden returns the text that stands for what is there. It is the same each time, so that errors are, too.
func hidden(path string) string { return "(hidden: " + path + ")" }

// lift puts the values back where their text is in their field, and nowhere else. It returns how many bytes they have as JSON. The object is not
// to be used if these are more than most.
func (v *veil) lift(obj *unstructured.Unstructured, most int) int {
	if v == nil {
		return 0
	}
	left := most
	for _, field := range heldIn() {
		if values, ok := obj.Object[field].(map[string]any); ok {
			for key, shown := range values {
				values[key] = v.lifted(field, shown, &left)
			}
		} else if shown, has := obj.Object[field]; has {
			obj.Object[field] = v.lifted(field, shown, &left)
		}
	}
	return most - left
}

// lifted returns the value that a text stands for in a field, or what is there itself.
func (v *veil) lifted(field string, shown any, left *int) any {
	text, ok := shown.(string)
	if !ok {
		return shown
	}
	value, is := v.held[field][text]
	if !is {
		return shown
	}
	if *left -= sizeAsJSON(value); *left < 0 {
		return shown
	}
	return runtime.DeepCopyJSONValue(value)
}

func sizeAsJSON(value any) int {
	text, err := json.Marshal(value)
	if err != nil {
		return mostBytes
	}
	return len(text)
}
