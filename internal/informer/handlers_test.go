package informer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestAnInformerKeepsNothingOfAHandlerThatWasRemoved: it may outlast thousands of them.
func TestAnInformerKeepsNothingOfAHandlerThatWasRemoved(t *testing.T) {
	t.Parallel()
	i, _ := New(nil, &corev1.ConfigMap{}, 0, toolscache.Indexers{}).(*Informer)
	kept, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		handle, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // again, which is harmless
			if err := i.RemoveEventHandler(handle); err != nil {
				t.Error(err)
			}
		}
	}
	if len(i.handlers) != 1 {
		t.Errorf("%d handlers are kept, want one", len(i.handlers))
	}
	if err := i.RemoveEventHandler(kept); err != nil || len(i.handlers) != 0 {
		t.Errorf("%d handlers are kept, error %v", len(i.handlers), err)
	}
}
