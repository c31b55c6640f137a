package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestNothingIsCachedOfTheHubThatNobodyReads: who has set which field takes more memory than the fields of an object with many.
func TestNothingIsCachedOfTheHubThatNobodyReads(t *testing.T) {
	t.Parallel()
	cm := configMap("a", "b", "c")
	cm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	kept, err := (&controller{}).ofHub().DefaultTransform(cm)
	must(t, err)
	if obj, is := kept.(client.Object); !is || len(obj.GetManagedFields()) > 0 || obj.GetName() != "a" {
		t.Errorf("the cache has %v", kept)
	}
}
