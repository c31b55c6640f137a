package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// What a Secret holds is not for all who may write Replicators, or read their status. So overrides cannot read it: what they cannot read, they
// put into no name, label or error. They may write it.

// isSecret reports whether an object is a Secret. It is asked before any override.
func isSecret(obj *unstructured.Unstructured) bool {
	return obj.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// isHeld reports whether a field of a Secret has what it holds.
func isHeld(field string) bool { return field == "data" || field == "stringData" }

// readable returns of an object what expressions see.
func readable(obj map[string]any, secret bool) map[string]any {
	if !secret {
		return obj
	}
	seen := maps.Clone(obj)
	maps.DeleteFunc(seen, func(field string, _ any) bool { return isHeld(field) })
	return seen
}

// checkReads returns an error about an operation that reads what a Secret holds. The root is read with all that is in it.
func checkReads(all []v1alpha1.Operation) error {
	for _, o := range all {
		read := o.Path
		switch o.Op {
		case "copy", "move":
			read = o.From
		case "test":
		default:
			continue
		}
		before, below, isBelow := strings.Cut(read, "/")
		field, _, _ := strings.Cut(below, "/")
		if before != "" || !isBelow || isHeld(unescape(field)) {
			return fmt.Errorf("jsonPatch: %s must not read %.64q: overrides do not read data and stringData of Secrets", o.Op, read)
		}
	}
	return nil
}

// errUntold stands for an error that may quote a Secret. Who reads the status of a Replicator may not be allowed to read Secrets.
var errUntold = errors.New("it does not fit the object, which is a Secret, so that no details are told")

// told returns an error about an object, as it may be shown.
func told(secret bool, err error) error {
	if secret && err != nil {
		return errUntold
	}
	return err
}
