package objects_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// A provider of the remote clusters of an Istio mesh: each key of a labelled Secret names a cluster, and the value is its
// kubeconfig.
func ExampleProvider() {
	var _ fleet.Provider = objects.Provider[*corev1.Secret]{
		Name:       "istio",
		Object:     &corev1.Secret{},
		Selectors:  []labels.Selector{labels.SelectorFromSet(labels.Set{"istio/multiCluster": "true"})},
		Namespaces: []string{"istio-system"},
		Members: func(_ context.Context, secret *corev1.Secret, _ objects.Reader) ([]fleet.Member, error) {
			members := make([]fleet.Member, 0, len(secret.Data))
			for name, text := range secret.Data {
				members = append(members, kubeconfig.Member(fleet.ClusterName(name), text, "", kubeconfig.Allow{}))
			}
			return members, nil
		},
	}
}
