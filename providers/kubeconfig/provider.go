// Package kubeconfig is the provider of clusters that are described by labelled Secrets of the local cluster: by a
// kubeconfig, or by what Argo CD, Cluster API, Flux, Istio or others have there.
package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
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

// Provider is a [fleet.Provider] of the clusters that Secrets of the local cluster describe. The labels of a Secret are
// the labels of its members. The zero value looks in the manager's own namespace. A provider must not be changed after Run
// was called.
//
// A Secret describes 100 members at most, of which the first by name count: more are a problem, and are to be spread over several
// Secrets.
//
// Whoever may write Secrets where the provider looks can add clusters to the fleet. Namespace, Namespaces,
// NamespaceSelector and AllNamespaces say where that is; at most one of them may be set.
//
// The manager needs the rights to get, list and watch Secrets there, and to create and patch events (of events.k8s.io).
// Rights on Secrets cannot be limited to a label.
type Provider struct {
	// Namespace is the one namespace of the Secrets.
	// Default: that of the manager, which is in the environment variable POD_NAMESPACE, or else known to every pod with a
	// service account.
	Namespace string

	// Namespaces are the namespaces of the Secrets, if there are several.
	Namespaces []string

	// NamespaceSelector matches the labels of the namespaces of the Secrets. The manager needs the rights to list and watch
	// namespaces, and those on Secrets in all of them.
	NamespaceSelector labels.Selector

	// AllNamespaces takes the Secrets of all namespaces.
	AllNamespaces bool

	// Formats are the conventions that the Secrets follow, several at once if need be. If a Secret follows several, it
	// describes members in all of them; of two with the same name, that of the first format counts.
	// Default: [Labelled], as Selectors and Key change it.
	Formats []Format

	// Selectors say which Secrets hold kubeconfigs: those that match at least one of them. They are for the default
	// format: with Formats, each of these has its own, and Run returns an error.
	// Default: those of [Labelled], for [Label] or [MulticlusterRuntimeLabel] set to "true".
	Selectors []labels.Selector

	// Key is the key of the kubeconfig in the data of a Secret. It is for the default format, as Selectors are.
	// Default: [DefaultKey].
	Key string

	// Name returns the name of a member; name is what the format calls it, which is unique in the Secret's namespace.
	// In the default format that is the name of the Secret. Name must give each member a different one. It may be called
	// for several Secrets at once.
	// Default: name in one namespace, otherwise "namespace/name".
	Name func(secret *corev1.Secret, name string) fleet.ClusterName

	// Context returns the context to use of the kubeconfigs in a Secret; "" stands for their current contexts. It may be
	// called for several Secrets at once.
	// Default: the value of [ContextAnnotation], or "" without it.
	Context func(secret *corev1.Secret) string

	// Allow says what the Secrets may do beyond naming servers and holding credentials.
	// Default: nothing.
	Allow Allow
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. It returns an error before ctx is done only if the provider can never work, such as
// one whose fields contradict each other.
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	formats, err := p.formats()
	if err != nil {
		return err
	}
	namespaces, err := p.namespaces()
	if err != nil {
		return err
	}
	return objects.Provider[*corev1.Secret]{
		Name:              "kubeconfig",
		Object:            &corev1.Secret{},
		Selectors:         formats.selectors(),
		Namespaces:        namespaces,
		NamespaceSelector: p.NamespaceSelector,
		Members: func(_ context.Context, secret *corev1.Secret, _ objects.Reader) ([]fleet.Member, error) {
			return p.members(formats, secret)
		},
	}.Run(ctx, local, members)
}

// namespaces returns where the Secrets are; nothing stands for all namespaces.
func (p Provider) namespaces() ([]string, error) {
	ways := 0
	for _, set := range []bool{p.Namespace != "", len(p.Namespaces) > 0, p.NamespaceSelector != nil, p.AllNamespaces} {
		if set {
			ways++
		}
	}
	switch {
	case ways > 1:
		return nil, errors.New("providers/kubeconfig: set one of Provider.Namespace, Namespaces, NamespaceSelector and AllNamespaces")
	case slices.Contains(p.Namespaces, ""):
		return nil, errors.New("providers/kubeconfig: an element of Provider.Namespaces is empty; for all namespaces, set AllNamespaces")
	case p.NamespaceSelector != nil, p.AllNamespaces:
		return nil, nil
	case len(p.Namespaces) > 0:
		return p.Namespaces, nil
	case p.Namespace != "":
		return []string{p.Namespace}, nil
	}
	own, err := inpod.Namespace(inpod.NamespaceFile)
	if err != nil {
		return nil, fmt.Errorf("providers/kubeconfig: the Secrets are in the manager's own namespace by default: %w, or Provider.Namespace", err)
	}
	return []string{own}, nil
}

func (p Provider) formats() (formats, error) {
	if len(p.Formats) > 0 {
		if len(p.Selectors) > 0 || p.Key != "" {
			return nil, errors.New("providers/kubeconfig: Provider.Selectors and Provider.Key are for the default format; " +
				"with Provider.Formats, set the Selectors of these, and use Keyed for other keys")
		}
		return p.Formats, formats(p.Formats).validate()
	}
	format := Labelled()
	if len(p.Selectors) > 0 {
		format.Selectors = p.Selectors
	}
	if p.Key != "" {
		format.Members = underKeys(p.Key)
	}
	return formats{format}, formats{format}.validate()
}

func (p Provider) members(formats formats, secret *corev1.Secret) ([]fleet.Member, error) {
	members, err := formats.members(secret, Reading{Context: p.context(secret), Allow: p.Allow})
	for i, m := range members {
		members[i].Name = p.name(secret, cmp.Or(string(m.Name), secret.Name))
	}
	return members, err
}

func (p Provider) name(secret *corev1.Secret, name string) fleet.ClusterName {
	switch {
	case p.Name != nil:
		return p.Name(secret, name)
	case len(p.Namespaces) > 0, p.NamespaceSelector != nil, p.AllNamespaces:
		return fleet.ClusterName(secret.Namespace + "/" + name)
	}
	return fleet.ClusterName(name)
}

func (p Provider) context(secret *corev1.Secret) string {
	if p.Context != nil {
		return p.Context(secret)
	}
	return secret.Annotations[ContextAnnotation]
}
