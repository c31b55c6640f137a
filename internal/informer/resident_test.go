package informer

import (
	"reflect"
	"slices"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
)

// TestEachMethodOfAnInformerIsJudged: one that a newer client-go adds fails it, until somebody has said here whether it runs the
// informer. What runs it is for a resident to do in its own way, and all else is the informer's.
func TestEachMethodOfAnInformerIsJudged(t *testing.T) {
	t.Parallel()
	judged := []string{
		"Run", "RunWithContext", // the resident's own
		"AddEventHandler", "AddEventHandlerWithResyncPeriod", "AddEventHandlerWithOptions", "RemoveEventHandler",
		"GetStore", "GetIndexer", "AddIndexers", "GetController", "SetTransform",
		"HasSynced", "HasSyncedChecker", "IsStopped", "LastSyncResourceVersion",
		"SetWatchErrorHandler", "SetWatchErrorHandlerWithContext",
	}
	informer := reflect.TypeFor[toolscache.SharedIndexInformer]()
	for method := range informer.Methods() {
		if name := method.Name; !slices.Contains(judged, name) {
			t.Errorf("nobody has said whether %s runs an informer", name)
		}
	}
}
