package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// override returns an object with an override, the same one if that is not for it.
func (c *controller) override(
	ctx context.Context, o v1alpha1.Override, obj *unstructured.Unstructured, secret bool, target dependents.Target,
) (*unstructured.Unstructured, error) {
	if o.Target.Kind != "" && o.Target.Kind != obj.GetKind() || o.Target.Name != "" && o.Target.Name != obj.GetName() {
		return obj, nil
	}
	if o.Selector != nil {
		selected, err := selects(o.Selector, target.Labels)
		if err != nil || !selected {
			return obj, err
		}
	}
	if len(o.CEL) > 0 {
		return c.expressions.apply(ctx, o.CEL, obj, secret, target)
	}
	if err := checkReads(o.JSONPatch); secret && err != nil {
		return nil, err
	}
	before, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	after, err := patched(before, o)
	if err != nil {
		return nil, told(secret, err)
	}
	if len(after) > mostBytes {
		return nil, errTooMuch // each could add as much, and all that follow read it
	}
	changed := &unstructured.Unstructured{}
	if err := changed.UnmarshalJSON(after); err != nil {
		return nil, told(secret, fmt.Errorf("what it makes is no object: %w", err)) // the error has all of it
	}
	if identityOf(changed) != identityOf(obj) {
		return nil, errIdentity
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

func patched(before []byte, o v1alpha1.Override) ([]byte, error) {
	if o.MergePatch != nil {
		after, err := jsonpatch.MergePatch(before, o.MergePatch.Raw)
		if err != nil {
			return nil, fmt.Errorf("mergePatch: %w", err)
		}
		return after, nil
	}
	operations, err := json.Marshal(o.JSONPatch)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, fmt.Errorf("jsonPatch: %w", err)
	}
	bounded := jsonpatch.NewApplyOptions()
	bounded.AccumulatedCopySizeLimit = mostBytes
	after, err := patch.ApplyWithOptions(before, bounded)
	if err != nil {
		return nil, fmt.Errorf("jsonPatch: %w", err)
	}
	return after, nil
}

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
