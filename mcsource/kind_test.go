package mcsource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// schemed is a cluster of which only the scheme is known.
type schemed struct {
	cluster.Cluster
	scheme *runtime.Scheme
}

// GetScheme implements cluster.Cluster.
func (c schemed) GetScheme() *runtime.Scheme { return c.scheme }

// TestAKindThatTheSchemeDoesNotKnowIsAnErrorAtOnce: controller-runtime's source would start, and ask for it every ten seconds.
func TestAKindThatTheSchemeDoesNotKnowIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	empty, full := runtime.NewScheme(), runtime.NewScheme()
	if err := corev1.AddToScheme(full); err != nil {
		t.Fatal(err)
	}
	handler := mchandler.TypedHandlerFunc[client.Object, mcreconcile.Request](mchandler.EnqueueRequestForObject)
	member := Kind[client.Object](&corev1.ConfigMap{}, handler)
	hub := EachCluster[client.Object](schemed{scheme: empty}, &corev1.ConfigMap{}, handler)
	for name, tc := range map[string]struct {
		source Source
		scheme *runtime.Scheme
		known  bool
	}{
		"known":              {member, full, true},
		"unknown":            {member, empty, false},
		"unknown in the hub": {hub, full, false},
	} {
		_, err := tc.source.ForCluster(t.Context(), "a", schemed{scheme: tc.scheme})
		if (err == nil) != tc.known || err != nil && !runtime.IsNotRegisteredError(err) {
			t.Errorf("%s: ForCluster() = %v", name, err)
		}
	}
}
