package objects_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
				m := kubeconfig.Member(fleet.ClusterName(name), text, "", kubeconfig.Allow{})
				m.Labels = objects.Unreserved(secret.Labels)
				members = append(members, m)
			}
			return members, nil
		},
	}
}

// A provider of clusters that ConfigMaps describe, each with a Secret beside it that has the kubeconfig: the cluster of
// the ConfigMap "east" has the Secret "east-kubeconfig". When either changes, Members is called for the ConfigMap.
func ExampleAlso() {
	clusters := labels.SelectorFromSet(labels.Set{"example.com/cluster": "true"})
	provider := objects.Provider[*corev1.ConfigMap]{
		Object:     &corev1.ConfigMap{},
		Selectors:  []labels.Selector{clusters},
		Namespaces: []string{"clusters"},
		Members: func(ctx context.Context, described *corev1.ConfigMap, also objects.Reader) ([]fleet.Member, error) {
			name, secret := fleet.ClusterName(described.Name), &corev1.Secret{}
			err := also.Get(ctx, client.ObjectKey{Namespace: described.Namespace, Name: described.Name + "-kubeconfig"}, secret)
			if apierrors.IsNotFound(err) {
				return []fleet.Member{{Name: name, Err: objects.Waiting("NoKubeconfig", "its Secret does not exist yet")}}, nil
			}
			if err != nil {
				return nil, err
			}
			return []fleet.Member{kubeconfig.Member(name, secret.Data["kubeconfig"], "", kubeconfig.Allow{})}, nil
		},
		Also: []objects.Also{{
			Object:   &corev1.Secret{},
			Selector: clusters,
			Keys: func(secret client.Object) []client.ObjectKey {
				name, ok := strings.CutSuffix(secret.GetName(), "-kubeconfig")
				if !ok {
					return nil // it belongs to no ConfigMap
				}
				return []client.ObjectKey{{Namespace: secret.GetNamespace(), Name: name}}
			},
		}},
	}

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "east-kubeconfig"}}
	fmt.Println(provider.Also[0].Keys(secret))
	// Output: [clusters/east]
}

// A provider that describes no member for an object that is being deleted lets the members of some leave well.
func ExampleLeavesWell() {
	describes := func(cluster *corev1.ConfigMap) bool {
		return cluster.DeletionTimestamp.IsZero() || objects.LeavesWell(cluster)
	}
	deleted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	fmt.Println(describes(deleted))
	deleted.Finalizers = []string{objects.LeaveFinalizer}
	fmt.Println(describes(deleted))
	// Output:
	// false
	// true
}
