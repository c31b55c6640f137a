package mcbuilder

import (
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// logConstructor returns what makes the logger of each request: the controller's own, or the user's, and the cluster.
// The keys are those of controller-runtime's builder.
func logConstructor[request mcreconcile.ClusterAware[request]](
	mgr mcmanager.Manager, controller string, gvk schema.GroupVersionKind, given func(*request) logr.Logger,
) func(*request) logr.Logger {
	base := mgr.GetLogger().WithValues("controller", controller)
	if !gvk.Empty() {
		base = base.WithValues("controllerGroup", gvk.Group, "controllerKind", gvk.Kind)
	}
	return func(req *request) logr.Logger {
		logger := base
		if given != nil {
			logger = given(req)
		}
		if req == nil {
			return logger
		}
		values := []any{"cluster", (*req).Cluster()}
		if plain, ok := any(*req).(mcreconcile.Request); ok && given == nil {
			if !gvk.Empty() {
				values = append(values, gvk.Kind, klog.KRef(plain.Namespace, plain.Name))
			}
			values = append(values, "namespace", plain.Namespace, "name", plain.Name)
		}
		return logger.WithValues(values...) // at once: each call makes another logger
	}
}
