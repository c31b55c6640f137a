package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// job is what a process of [children] does with objects.
type job struct {
	Namespace string // of the Replicator
	Cluster   string
	Labels    map[string]string
	Overrides []numbered // that are for the cluster
}

// numbered is an override with its place in spec.overrides.
type numbered struct {
	Number   int
	Override v1alpha1.Override
}

// isFor reports whether an override is for an object.
func isFor(o v1alpha1.Override, obj *unstructured.Unstructured) bool {
	return (o.Target.Kind == "" || o.Target.Kind == obj.GetKind()) && (o.Target.Name == "" || o.Target.Name == obj.GetName())
}

// isFor reports whether any of its overrides is for an object.
func (j *job) isFor(obj *unstructured.Unstructured) bool {
	return slices.ContainsFunc(j.Overrides, func(o numbered) bool { return isFor(o.Override, obj) })
}

// apply returns an object with its overrides, as JSON.
func (j *job) apply(e *expressions, text []byte) ([]byte, error) {
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	for _, o := range j.Overrides {
		if !isFor(o.Override, obj) {
			continue
		}
		which := identityOf(obj)
		if err := j.override(e, o.Override, obj); err != nil {
			return nil, fmt.Errorf("spec.overrides[%d] of %.63s %.253s: %w", o.Number, which.kind, which.name, err)
		}
	}
	return json.Marshal(obj)
}

// override changes an object. Where it returns an error, the object may be anything.
func (j *job) override(e *expressions, o v1alpha1.Override, obj *unstructured.Unstructured) error {
	before := identityOf(obj)
	for i, x := range o.CEL {
		value, err := e.value(x.Expression, obj.Object, j)
		if err == nil {
			err = set(obj.Object, x.Path, value)
		}
		if err == nil && identityOf(obj) != before {
			err = errIdentity
		}
		if err != nil {
			return fmt.Errorf("cel[%d] for cluster %s: %w", i, j.Cluster, err)
		}
	}
	if len(o.CEL) > 0 {
		return nil
	}
	changed, err := patched(obj, o)
	if err != nil {
		return err
	}
	if identityOf(changed) != before {
		return errIdentity
	}
	obj.Object = changed.Object
	return nil
}

// patched returns an object with a patch.
func patched(obj *unstructured.Unstructured, o v1alpha1.Override) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if o.MergePatch != nil {
		if _, err := sizeOf(o.MergePatch.Raw); err != nil {
			return nil, fmt.Errorf("mergePatch: %w", err)
		}
		if text, err = jsonpatch.MergePatch(text, o.MergePatch.Raw); err != nil {
			return nil, fmt.Errorf("mergePatch: %w", err)
		}
	} else {
		for i, operation := range o.JSONPatch {
			if operation.Value == nil {
				continue
			}
			if _, err := sizeOf(operation.Value.Raw); err != nil {
				return nil, fmt.Errorf("jsonPatch[%d].value: %w", i, err)
			}
		}
		operations, err := json.Marshal(o.JSONPatch)
		if err != nil {
			return nil, err
		}
		patch, err := jsonpatch.DecodePatch(operations)
		if err == nil {
			text, err = patch.Apply(text)
		}
		if err != nil {
			return nil, fmt.Errorf("jsonPatch: %w", err)
		}
	}
	changed := &unstructured.Unstructured{}
	if err := changed.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("what it makes is no object: %w", err)
	}
	return changed, nil
}

// identity is what says which object an object is.
type identity struct{ apiVersion, kind, namespace, name string }

func identityOf(obj *unstructured.Unstructured) identity {
	return identity{obj.GetAPIVersion(), obj.GetKind(), obj.GetNamespace(), obj.GetName()}
}

// String is for errors.
func (i identity) String() string {
	return fmt.Sprintf("%.128s %.64s %.64s/%.253s", i.apiVersion, i.kind, i.namespace, i.name)
}

var errIdentity = errors.New("it must not change apiVersion, kind, name and namespace")

// set sets what a JSON pointer leads to, and makes maps on the way.
func set(in map[string]any, pointer string, value any) error {
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	var at any = in
	for i, part := range parts {
		part = unescape(part)
		last := i == len(parts)-1
		switch here := at.(type) {
		case map[string]any:
			if last {
				here[part] = value
				return nil
			}
			if here[part] == nil {
				here[part] = map[string]any{}
			}
			at = here[part]
		case []any:
			index, err := indexIn(here, part)
			if err != nil {
				return fmt.Errorf("path %s: %w", pointer, err)
			}
			if last {
				here[index] = value
				return nil
			}
			at = here[index]
		default:
			return fmt.Errorf("path %s: /%s is neither a map nor a list", pointer, strings.Join(parts[:i], "/"))
		}
	}
	return nil
}

// unescape returns a part of a JSON pointer as it is in the object.
func unescape(part string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(part) }

func indexIn(list []any, part string) (int, error) {
	index, err := strconv.Atoi(part)
	switch {
	case err != nil:
		return 0, errors.New("it leads into a list, and not by a number")
	case index < 0 || index >= len(list):
		return 0, errors.New("the list is shorter")
	}
	return index, nil
}
