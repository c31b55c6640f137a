package kubeconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// istioLabel marks remote Secrets: https://github.com/istio/istio/blob/master/pkg/kube/multicluster/secretcontroller.go
const istioLabel = "istio/multiCluster"

// Istio is the format of Istio's remote Secrets, such as "istioctl create-remote-secret" makes, with the label
// istio/multiCluster set to "true". Each key is a cluster: it is the name of the member, and has its kubeconfig.
// Istio itself reads them in one namespace, mostly istio-system.
func Istio() Format {
	return Format{
		Selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{istioLabel: labelTrue})},
		Members:   istioMembers,
	}
}

func istioMembers(secret *corev1.Secret, reading Reading) ([]fleet.Member, error) {
	if len(secret.Data) == 0 {
		return nil, fmt.Errorf("%w: the Secret has no keys", objects.ErrNone)
	}
	members := make([]fleet.Member, 0, len(secret.Data))
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		m := Member(fleet.ClusterName(key), secret.Data[key], reading.Context, reading.Allow)
		if err, ok := errors.AsType[*Error](m.Err); ok {
			m.Err = newError(err.reason, "%s: %s", entry("key", key), err.message) // one of several in the Secret
		}
		members = append(members, m)
	}
	return members, nil
}
