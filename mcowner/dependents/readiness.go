package dependents

import (
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// errStalled says that an object will not become ready by itself.
var errStalled = errors.New("it has failed")

var jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}

// unready returns why an object is not ready, nil if it is. The error wraps ErrWaiting, or errStalled as well.
func unready(k remote.Kind, obj client.Object) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		content, err := contentOf(obj)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrWaiting, err)
		}
		u = &unstructured.Unstructured{Object: content}
	}
	u = &unstructured.Unstructured{Object: withKind(u.Object, k)}
	found, err := status.Compute(u)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrWaiting, err)
	case found.Status == status.FailedStatus:
		return fmt.Errorf("%w: %w: %s", ErrWaiting, errStalled, found.Message)
	case found.Status != status.CurrentStatus:
		return fmt.Errorf("%w: %s", ErrWaiting, found.Message)
	case k.GroupKind() == jobKind && condition(u, "Complete") != "True": // kstatus is content with one that has begun
		return fmt.Errorf("%w: %s", ErrWaiting, found.Message)
	case condition(u, "Available") == "False": // which kstatus knows of Deployments alone
		return fmt.Errorf("%w: it is not available", ErrWaiting)
	default:
		return nil
	}
}

// withKind returns the content with the kind, which typed objects may lack. The rest is shared, and read alone.
func withKind(content map[string]any, k remote.Kind) map[string]any {
	all := maps.Clone(content)
	all["apiVersion"], all["kind"] = k.GroupVersion().String(), k.Kind
	return all
}

// condition returns the status of a condition, empty if there is none.
func condition(u *unstructured.Unstructured, of string) string {
	conditions, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions") // what is not there says nothing
	list, _ := conditions.([]any)
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == of {
			is, _ := c["status"].(string)
			return is
		}
	}
	return ""
}
