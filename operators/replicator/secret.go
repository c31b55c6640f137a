package main

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// veil is what a Secret holds, which is not for all who may write Replicators, or read their status. Overrides see a text in the place of each value,
// and may write others there. So nothing that they do with it, in whatever way they come to it, puts it into a name, a label or an error.
type veil struct {
	kind string                       // the Secret's type, on which depends what the API server says about its values
	held map[string]map[string]string // values, by the field and by the text
}

// heldIn are the fields of a Secret that hold something.
func heldIn() []string { return []string{"data", "stringData"} }

var (
	errNoTexts   = errors.New("the type of a Secret has to be a text, and data and stringData maps of texts")
	errElsewhere = errors.New("overrides do not see what a Secret holds: its values stay whole, and in the field where they are")
	errType      = errors.New("no override changes the type of a Secret")
)

// isSecret reports whether an object is a Secret. It is asked before any override.
func isSecret(obj *unstructured.Unstructured) bool {
	return obj.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// typeOf returns the type of a Secret, empty if it has none, and whether it is a text: maps and lists must not be compared.
func typeOf(secret *unstructured.Unstructured) (kind string, isText bool) {
	value := secret.Object["type"]
	kind, isText = value.(string)
	return kind, isText || value == nil
}

// veiled returns an object as overrides see it, and what they do not see: nothing of what is no Secret.
func veiled(obj *unstructured.Unstructured) (*unstructured.Unstructured, *veil, error) {
	if !isSecret(obj) {
		return obj, nil, nil
	}
	kind, isText := typeOf(obj)
	if !isText {
		return nil, nil, errNoTexts
	}
	seen, v := maps.Clone(obj.Object), &veil{kind: kind, held: map[string]map[string]string{}}
	for _, field := range heldIn() {
		if seen[field] == nil {
			continue
		}
		values, ok := seen[field].(map[string]any)
		if !ok {
			return nil, nil, errNoTexts
		}
		shown := make(map[string]any, len(values))
		v.held[field] = make(map[string]string, len(values))
		for key, value := range values {
			text, ok := value.(string)
			if !ok {
				return nil, nil, errNoTexts
			}
			standsFor := hidden(field, key)
			shown[key], v.held[field][standsFor] = standsFor, text
		}
		seen[field] = shown
	}
	return &unstructured.Unstructured{Object: seen}, v, nil
}

// hidden returns the text that stands for a value. It is the same each time, so that errors are, too.
func hidden(field, key string) string { return "(hidden: " + field + "." + key + ")" }

// isHidden reports whether a text has one that stands for a value.
func isHidden(text string) bool {
	return strings.Contains(text, "(hidden: data.") || strings.Contains(text, "(hidden: stringData.")
}

// lift puts the values back where their text is in their field, and fails if it is anywhere else. It returns how much room they take. The object is
// not to be used if that is more than most, or if there is an error.
func (v *veil) lift(obj *unstructured.Unstructured, most int) (size int, err error) {
	if v == nil {
		return 0, nil
	}
	if kind, isText := typeOf(obj); !isText || kind != v.kind {
		return 0, errType
	}
	for _, field := range heldIn() {
		values, _ := obj.Object[field].(map[string]any)
		lifted := make(map[string]any, len(values))
		for key, shown := range values {
			text, _ := shown.(string)
			value, is := v.held[field][text]
			if !is {
				continue
			}
			if size += bytesOfField + lengthAsJSON(value); size > most {
				return size, nil
			}
			lifted[key] = value
			delete(values, key)
		}
		defer maps.Copy(values, lifted)
	}
	if tells(obj.Object) {
		return 0, errElsewhere
	}
	return size, nil
}

// tells reports whether there is a text that stands for a value.
func tells(what any) bool {
	switch what := what.(type) {
	case string:
		return isHidden(what)
	case []any:
		return slices.ContainsFunc(what, tells)
	case map[string]any:
		for key, one := range what {
			if isHidden(key) || tells(one) {
				return true
			}
		}
	}
	return false
}
