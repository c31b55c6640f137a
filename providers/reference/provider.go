// Package reference is the provider of clusters to which objects of the local cluster lead by the name of a Secret, as
// those of Flux, Karmada, Kueue, Rancher, Sveltos and vcluster do. The Secrets need no labels.
package reference

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/served"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// Provider is a [fleet.Provider] of the clusters to which objects lead by the name of a Secret. An object that names a
// Secret is a member at once, and Pending while the Secret, or the key in it, is missing. A provider must not be changed
// after Run was called.
//
// The member has the name and the labels of its object, or of its Secret if the format is [Format.PerSecret]. The name has
// the namespace before it, as in "namespace/name", unless all objects and Secrets are in one.
//
// The manager needs the rights to get, list and watch the objects, the same for Secrets where the objects are and in
// [Format.SecretNamespaces], and to create and patch events (of events.k8s.io); and to patch objects that have the finalizer
// fleet-runtime.dev/leave. Its scheme need not know the objects.
type Provider struct {
	// Format says which objects lead to clusters, and how: such as [Flux]. Required.
	Format Format

	// Namespaces are where the objects are; metav1.NamespaceAll stands for all namespaces. Whoever may write objects and
	// Secrets there can join the fleet. Required, but for kinds without namespaces.
	Namespaces []string

	// Selector says which objects are members.
	// Default: all of the format.
	Selector labels.Selector

	// SecretSelector says which Secrets are watched. Others are missing to the provider, and cost it no memory.
	// Default: all.
	SecretSelector labels.Selector

	// Allow says what the Secrets may do beyond naming servers and holding credentials.
	// Default: nothing.
	Allow kubeconfig.Allow
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider]. It returns an error before ctx is done only if the provider can never work, such as one
// without a format.
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	if err := p.validate(); err != nil {
		return fmt.Errorf("providers/reference: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	shared := newClaims(members, logf.FromContext(ctx))
	running, ctx := errgroup.WithContext(ctx)
	for _, kind := range p.Format.Kinds {
		f := &follower{provider: p, kind: kind.Kind, named: newIndex()}
		running.Go(func() error {
			version, ok := served.Provider{Name: name, Members: members}.Wait(ctx, local, kind)
			if !ok {
				return nil // ctx is done
			}
			return f.engine(version, scheme).Run(ctx, local, shared)
		})
	}
	return running.Wait()
}

func (p Provider) validate() error {
	switch {
	case len(p.Format.Kinds) == 0 || p.Format.Read == nil:
		return errors.New("set Provider.Format, such as to Flux(), with Kinds and Read")
	case len(p.Format.Kinds) > 1 && !p.Format.PerSecret:
		return errors.New("Format.Kinds has several kinds, whose objects may have the same names: set Format.PerSecret")
	case p.Format.ClusterScoped && len(p.Namespaces) > 0:
		return errors.New("leave Provider.Namespaces empty: the objects have no namespaces")
	case p.Format.ClusterScoped && len(p.Format.SecretNamespaces) == 0:
		return errors.New("set Format.SecretNamespaces: the objects have no namespace of their own")
	case !p.Format.ClusterScoped && len(p.Namespaces) == 0:
		return errors.New("set Provider.Namespaces; metav1.NamespaceAll stands for all")
	}
	return nil
}

// secretNamespaces returns where Secrets are watched.
func (p Provider) secretNamespaces() []string {
	all := slices.Concat(p.Namespaces, p.Format.SecretNamespaces)
	if slices.Contains(all, metav1.NamespaceAll) {
		return []string{metav1.NamespaceAll}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// oneNamespace reports whether all names are of one namespace.
func (p Provider) oneNamespace() bool {
	where := p.secretNamespaces()
	return len(where) == 1 && where[0] != metav1.NamespaceAll
}

// name is that of the provider, in logs, events and problems.
const name = "reference"

// follower follows the objects of one kind.
type follower struct {
	provider Provider
	kind     string
	named    *index
}

func (f *follower) engine(version schema.GroupVersionKind, scheme *runtime.Scheme) objects.Provider[*unstructured.Unstructured] {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(version)
	engine := objects.Provider[*unstructured.Unstructured]{
		Name:       name,
		Object:     obj,
		Scheme:     scheme,
		Namespaces: f.provider.Namespaces,
		Members:    f.members,
		Gone:       f.named.forget,
		Also: []objects.Also{{
			Object:     &corev1.Secret{},
			Selector:   f.provider.SecretSelector,
			Namespaces: f.provider.secretNamespaces(),
			Trim:       trim,
			Keys:       func(secret client.Object) []client.ObjectKey { return f.named.by(client.ObjectKeyFromObject(secret)) },
		}},
	}
	if both := and(f.provider.Format.Selector, f.provider.Selector); both != nil {
		engine.Selectors = []labels.Selector{both}
	}
	return engine
}

// and returns a selector of what both select; a selector that is nil selects all.
func and(a, b labels.Selector) labels.Selector {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	requirements, selectable := b.Requirements()
	if !selectable {
		return b
	}
	return a.Add(requirements...)
}

// notCredentials are types of Secrets in which no kubeconfig and no token for a cluster is. Those of Helm are large.
var notCredentials = []corev1.SecretType{
	"helm.sh/release.v1", corev1.SecretTypeTLS, corev1.SecretTypeDockercfg, corev1.SecretTypeDockerConfigJson,
	corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeBootstrapToken,
}

// trim takes from Secrets what the provider has no use for. Annotations may hold all that was applied.
func trim(obj client.Object) {
	obj.SetAnnotations(nil)
	if secret, ok := obj.(*corev1.Secret); ok && slices.Contains(notCredentials, secret.Type) {
		secret.Data = nil
	}
}
