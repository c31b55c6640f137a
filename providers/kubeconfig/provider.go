// Package kubeconfig is the provider of clusters whose kubeconfigs are in labelled Secrets of the local cluster.
package kubeconfig

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

const (
	// Label is the label that, with the value "true", marks a Secret that holds the kubeconfig of a member.
	Label = "fleet-runtime.dev/kubeconfig"
	// MulticlusterRuntimeLabel is the label that marks them for sigs.k8s.io/multicluster-runtime.
	MulticlusterRuntimeLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig"
	// ContextAnnotation is the annotation of a Secret that names the context of its kubeconfig to use.
	ContextAnnotation = "fleet-runtime.dev/context"

	// DefaultKey is the key of the kubeconfig in the data of a Secret.
	DefaultKey = "kubeconfig"
)

// Provider is a [fleet.Provider] of the clusters whose kubeconfigs are in labelled Secrets. The labels of a Secret are
// the labels of its member. The zero value works. A provider must not be changed after Run was called.
//
// The manager needs the rights to get, list and watch Secrets where the provider looks, and to create and patch events
// (of events.k8s.io). Restrict it to one namespace where possible: rights on Secrets cannot be limited to a label.
type Provider struct {
	// Namespace is where the Secrets are.
	// Default: in all namespaces.
	Namespace string

	// Selectors say which Secrets hold kubeconfigs: those that match at least one of them.
	// Default: those with [Label] or [MulticlusterRuntimeLabel] set to "true".
	Selectors []labels.Selector

	// Key is the key of the kubeconfig in the data of a Secret.
	// Default: [DefaultKey].
	Key string

	// Name returns the name of the member. It must give each Secret a different one.
	// Default: the name of the Secret if Namespace is set, otherwise "namespace/name".
	Name func(secret *corev1.Secret) fleet.ClusterName

	// Context returns the context of the kubeconfig to use; "" stands for its current context.
	// Default: the value of [ContextAnnotation], or "" without it.
	Context func(secret *corev1.Secret) string

	// Allow says what the kubeconfigs may do beyond naming a server and holding credentials.
	// Default: nothing.
	Allow Allow
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider].
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	engine := objects.Provider[*corev1.Secret]{
		Name:      "kubeconfig",
		Object:    &corev1.Secret{},
		Selectors: p.Selectors,
		Members:   p.members,
	}
	if len(p.Selectors) == 0 {
		engine.Selectors = []labels.Selector{
			labels.SelectorFromSet(labels.Set{Label: "true"}),
			labels.SelectorFromSet(labels.Set{MulticlusterRuntimeLabel: "true"}),
		}
	}
	if p.Namespace != "" {
		engine.Namespaces = []string{p.Namespace}
	}
	return engine.Run(ctx, local, members)
}

func (p Provider) members(_ context.Context, secret *corev1.Secret, _ objects.Reader) ([]fleet.Member, error) {
	key := cmp.Or(p.Key, DefaultKey)
	kubeconfig, ok := secret.Data[key]
	if !ok {
		return nil, fmt.Errorf("%w: the Secret has no key %q", objects.ErrNone, key)
	}
	m := Member(p.name(secret), kubeconfig, p.context(secret), p.Allow)
	m.Labels = secret.Labels
	return []fleet.Member{m}, nil
}

func (p Provider) name(secret *corev1.Secret) fleet.ClusterName {
	switch {
	case p.Name != nil:
		return p.Name(secret)
	case p.Namespace != "":
		return fleet.ClusterName(secret.Name)
	}
	return fleet.ClusterName(secret.Namespace + "/" + secret.Name)
}

func (p Provider) context(secret *corev1.Secret) string {
	if p.Context != nil {
		return p.Context(secret)
	}
	return secret.Annotations[ContextAnnotation]
}
