// Package capi is the provider of the clusters that Cluster API makes (https://cluster-api.sigs.k8s.io).
package capi

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// Labels that a member has beside those of its Cluster, if the Cluster has a topology.
const (
	// ClassLabel is the name of the ClusterClass.
	ClassLabel = "fleet-runtime.dev/cluster-class"
	// VersionLabel is the version of Kubernetes that the topology asks for, such as v1.34.1, with _ in the place of +.
	VersionLabel = "fleet-runtime.dev/kubernetes-version"
)

// Reasons of members that cannot be reached yet, or not any more. One that is engaged stays so.
const (
	// ReasonNotInitialized is for a control plane that does not serve requests yet.
	ReasonNotInitialized = "ControlPlaneNotInitialized"
	// ReasonNoKubeconfig is for a Cluster whose kubeconfig Secret does not exist.
	ReasonNoKubeconfig = "NoKubeconfig"
	// ReasonSecretsUnreadable is for a Cluster of which it is not known whether the kubeconfig Secret exists: the server
	// has not listed the Secrets yet, or the manager has no right to that.
	ReasonSecretsUnreadable = "SecretsUnreadable"
)

// What the contract of control plane providers says of the Secret with the kubeconfig:
// https://cluster-api.sigs.k8s.io/developer/providers/contracts/control-plane#cluster-kubeconfig-management
const (
	suffix  = "-kubeconfig"
	dataKey = "value"
)

// Provider is a [fleet.Provider] of the clusters of Cluster API, from version 1.11 on, which serves v1beta2. A member is
// reported as soon as its Cluster exists, and engaged once the control plane is initialized and the Secret with the
// kubeconfig exists. It is withdrawn when the Cluster is paused, and when its deletion begins. The labels of the Cluster
// are the labels of the member, with [ClassLabel] and [VersionLabel]. The zero value works. A provider must not be
// changed after Run was called.
//
// The manager needs the rights to get, list and watch Clusters and Secrets where the provider looks, and to create and
// patch events (of events.k8s.io); and to patch Clusters that have the finalizer fleet-runtime.dev/leave.
// Its scheme need not know the Clusters.
type Provider struct {
	// Namespace is where the Clusters are.
	// Default: in all namespaces.
	Namespace string

	// Selector says which Clusters are members.
	// Default: all.
	Selector labels.Selector

	// KeepPaused leaves the members of paused Clusters as they are. It is for controllers that have no part in how
	// clusters are made and changed, and only if no Cluster is moved between local clusters that both run them:
	// clusterctl move pauses a Cluster in both.
	KeepPaused bool

	// Allow says what the kubeconfigs may do beyond naming a server and holding credentials.
	// Default: nothing.
	Allow kubeconfig.Allow
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider].
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clusterv1.AddToScheme, corev1.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return err
	}
	labelled, err := labels.Parse(clusterv1.ClusterNameLabel)
	if err != nil {
		return err
	}
	engine := objects.Provider[*clusterv1.Cluster]{
		Name:    "capi",
		Object:  &clusterv1.Cluster{},
		Scheme:  scheme,
		Members: p.members,
		Also: []objects.Also{{
			Object:   &corev1.Secret{},
			Selector: labelled,
			Keys:     keys,
			Trim:     trim,
		}},
	}
	if p.Selector != nil {
		engine.Selectors = []labels.Selector{p.Selector}
	}
	if p.Namespace != "" {
		engine.Namespaces = []string{p.Namespace}
	}
	return engine.Run(ctx, local, members)
}

// keys returns the key of the Cluster whose kubeconfig the Secret holds.
func keys(secret client.Object) []client.ObjectKey {
	name, ok := strings.CutSuffix(secret.GetName(), suffix)
	if !ok {
		return nil
	}
	return []client.ObjectKey{{Namespace: secret.GetNamespace(), Name: name}}
}

// trim empties the Secrets that hold no kubeconfig. They have the same label: the keys of certificate authorities, and
// what each machine is started with.
func trim(obj client.Object) {
	if secret, ok := obj.(*corev1.Secret); ok && !strings.HasSuffix(secret.Name, suffix) {
		secret.Data = nil
	}
}

func (p Provider) members(ctx context.Context, c *clusterv1.Cluster, also objects.Reader) ([]fleet.Member, error) {
	deleted := !c.DeletionTimestamp.IsZero() && !objects.LeavesWell(c)
	if deleted || paused(c) && !p.KeepPaused {
		return nil, nil
	}
	name := fleet.ClusterName(c.Name)
	if p.Namespace == "" {
		name = fleet.ClusterName(c.Namespace + "/" + c.Name)
	}
	m := p.access(ctx, name, c, also)
	m.Labels = labelsOf(c)
	return []fleet.Member{m}, nil
}

// access returns the member without its labels.
func (p Provider) access(ctx context.Context, name fleet.ClusterName, c *clusterv1.Cluster, also objects.Reader) fleet.Member {
	if !initialized(c) {
		err := objects.Waiting(ReasonNotInitialized, "the control plane of the Cluster is not initialized yet")
		return fleet.Member{Name: name, Err: err}
	}
	secret, key := &corev1.Secret{}, client.ObjectKey{Namespace: c.Namespace, Name: c.Name + suffix}
	err := also.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		err = objects.Waiting(ReasonNoKubeconfig, fmt.Sprintf(
			"there is no Secret %s with the label %s", key, clusterv1.ClusterNameLabel))
		return fleet.Member{Name: name, Err: err}
	}
	if err != nil {
		err = objects.Waiting(ReasonSecretsUnreadable, fmt.Sprintf("the Secret %s cannot be read; the manager needs the rights "+
			"to get, list and watch Secrets: %s", key, oneline.Text(err.Error(), maxCause)))
		return fleet.Member{Name: name, Err: err}
	}
	m := kubeconfig.Member(name, secret.Data[dataKey], "", p.Allow)
	if m.Err != nil {
		m.Err = fmt.Errorf("key %q of Secret %s: %w", dataKey, key, m.Err)
	}
	return m
}

// maxCause is how much of an error that comes from elsewhere is shown, in bytes.
const maxCause = 300

// paused reports whether controllers shall leave the Cluster alone. The annotation counts whatever its value is, as in
// Cluster API.
func paused(c *clusterv1.Cluster) bool {
	_, annotated := c.Annotations[clusterv1.PausedAnnotation]
	return annotated || c.Spec.Paused != nil && *c.Spec.Paused
}

// initialized reports whether the control plane has begun to serve requests. That never ends: whether it serves them now
// is for the fleet to find out. The field is part of Cluster API's contract. The condition is more: it is set too if the
// control plane is of single machines, without an object of its own.
func initialized(c *clusterv1.Cluster) bool {
	field := c.Status.Initialization.ControlPlaneInitialized
	return field != nil && *field || meta.IsStatusConditionPresentAndEqual(
		c.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition, metav1.ConditionTrue)
}

// labelsOf returns the labels of the member. A class whose name is too long for a label
// has none.
func labelsOf(c *clusterv1.Cluster) map[string]string {
	all := map[string]string{}
	for key, value := range map[string]string{
		ClassLabel:   c.Spec.Topology.ClassRef.Name,
		VersionLabel: strings.ReplaceAll(c.Spec.Topology.Version, "+", "_"),
	} {
		if value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			all[key] = value
		}
	}
	maps.Copy(all, objects.Unreserved(c.Labels))
	return all
}
