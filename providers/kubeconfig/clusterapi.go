package kubeconfig

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// What marks the kubeconfig of a Cluster, according to the contract for control plane providers:
// https://cluster-api.sigs.k8s.io/developer/providers/contracts/control-plane#cluster-kubeconfig-management
const (
	clusterAPILabel  = "cluster.x-k8s.io/cluster-name"
	clusterAPIType   = "cluster.x-k8s.io/secret"
	clusterAPISuffix = "-kubeconfig"
	clusterAPIKey    = "value"
)

// ClusterAPI is the format of Cluster API: each Cluster has a Secret CLUSTER-kubeconfig. Its other Secrets, such as
// CLUSTER-ca, describe no members. The member has the name of the Cluster.
//
// A Cluster is a member as soon as it has the Secret, and until the Secret is gone; its state, labels and topology are
// not looked at.
func ClusterAPI() Format {
	labelled, _ := labels.Parse(clusterAPILabel) // the name alone asks for any value
	return Format{Selectors: []labels.Selector{labelled}, Members: clusterAPIMembers}
}

func clusterAPIMembers(secret *corev1.Secret, reading Reading) ([]fleet.Member, error) {
	name, ok := strings.CutSuffix(secret.Name, clusterAPISuffix)
	switch {
	case !ok || name != secret.Labels[clusterAPILabel]:
		return nil, nil
	case secret.Type != clusterAPIType:
		return nil, fmt.Errorf("%w: the type of the Secret is %q, not %q", objects.ErrNone, secret.Type, clusterAPIType)
	}
	members, err := underKeys(clusterAPIKey)(secret, reading)
	for i := range members {
		members[i].Name = fleet.ClusterName(name)
	}
	return members, err
}
