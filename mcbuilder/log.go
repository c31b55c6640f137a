package mcbuilder

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// logConstructor returns what makes the logger of each request: the controller's own, or the user's, and the cluster.
// The keys are those of controller-runtime's builder.
func logConstructor[request mcreconcile.ClusterAware[request]](
	logger logr.Logger, controller string, gvk schema.GroupVersionKind, given func(*request) logr.Logger,
) func(*request) logr.Logger {
	base := logger.WithValues("controller", controller)
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
		var values []any
		if plain, ok := any(*req).(mcreconcile.Request); ok && given == nil {
			if !gvk.Empty() {
				values = append(values, gvk.Kind, klog.KRef(plain.Namespace, plain.Name))
			}
			values = append(values, "namespace", plain.Namespace, "name", plain.Name)
		}
		return withCluster(logger, (*req).Cluster(), values...)
	}
}

// clusterKey is under what lines of logs have their cluster.
const clusterKey = "cluster"

// withCluster returns a logger whose lines have the cluster, once, and the values. Reconcilers that were written for multicluster-runtime
// add it themselves.
func withCluster(logger logr.Logger, name mcreconcile.ClusterName, values ...any) logr.Logger {
	sink := logger.GetSink()
	if sink == nil {
		return logger
	}
	sink = sink.WithValues(append([]any{clusterKey, name}, values...)...) // at once: each call makes another sink
	if deep, ok := sink.(logr.CallDepthLogSink); ok {
		sink = deep.WithCallDepth(1)
	}
	return logger.WithSink(clusterOnce{sink, string(name)})
}

// clusterOnce is a sink that has the cluster already, and leaves it out where it is given again.
type clusterOnce struct {
	logr.LogSink
	name string
}

// Info implements logr.LogSink.
func (s clusterOnce) Info(level int, msg string, values ...any) {
	s.LogSink.Info(level, msg, s.others(values)...)
}

// Error implements logr.LogSink.
func (s clusterOnce) Error(err error, msg string, values ...any) {
	s.LogSink.Error(err, msg, s.others(values)...)
}

// WithValues implements logr.LogSink.
func (s clusterOnce) WithValues(values ...any) logr.LogSink {
	if values = s.others(values); len(values) > 0 {
		s.LogSink = s.LogSink.WithValues(values...)
	}
	return s
}

// WithName implements logr.LogSink.
func (s clusterOnce) WithName(name string) logr.LogSink {
	s.LogSink = s.LogSink.WithName(name)
	return s
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s clusterOnce) WithCallDepth(depth int) logr.LogSink {
	if deep, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		s.LogSink = deep.WithCallDepth(depth)
	}
	return s
}

// others returns the keys and values without those that say the cluster again.
func (s clusterOnce) others(values []any) []any {
	for i := 0; i+1 < len(values); i += 2 {
		if values[i] == clusterKey && fmt.Sprint(values[i+1]) == s.name {
			return append(slices.Clip(values[:i]), s.others(values[i+2:])...)
		}
	}
	return values
}
