// Package clusterprofile is the provider of the clusters of an inventory: those that ClusterProfiles describe
// (https://github.com/kubernetes-sigs/cluster-inventory-api).
package clusterprofile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/served"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
)

// VersionLabel is the label of a member with the version of Kubernetes that its profile tells, with _ in the place of +.
const VersionLabel = "fleet-runtime.dev/kubernetes-version"

// Reasons of members that cannot be reached yet, or not any more. One that is engaged stays so.
const (
	// ReasonNotHealthy is for a profile whose condition ControlPlaneHealthy is False.
	ReasonNotHealthy = "ControlPlaneNotHealthy"
	// ReasonNoAccess is for a profile that says of no way to the cluster that is configured here.
	ReasonNoAccess = "NoAccessProvider"
	// ReasonSecretsUnreadable is for a profile of which it is not known whether there is a Secret for it: the server has
	// not listed the Secrets yet, or the manager has no right to that.
	ReasonSecretsUnreadable = "SecretsUnreadable"
)

// What KEP-4322 says of Secrets with credentials:
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/4322-cluster-inventory#secret-format
const (
	profileLabel          = "x-k8s.io/cluster-profile"
	profileNamespaceLabel = "x-k8s.io/cluster-profile-namespace"
)

// secretKeys are the keys of the kubeconfig, of which the first counts that a Secret has. The KEP says Config, and some who
// write such Secrets say config.
var secretKeys = []string{"Config", "config"}

// Provider is a [fleet.Provider] of the clusters that ClusterProfiles describe. AccessProviders, SecretNamespace or both
// must be set. The labels of a profile are the labels of its member, with its properties and [VersionLabel]. A provider
// must not be changed after Run was called.
//
// Profiles are read as v1alpha2 where the local cluster serves that when Run is called, and as v1alpha1 otherwise.
//
// The manager needs the rights to get, list and watch ClusterProfiles where the provider looks, the same for Secrets in
// SecretNamespace, and to create and patch events (of events.k8s.io); and to patch ClusterProfiles that have the finalizer
// fleet-runtime.dev/leave. Its scheme need not know the ClusterProfiles.
type Provider struct {
	// Namespace is where the ClusterProfiles are.
	// Default: in all namespaces.
	Namespace string

	// Selector says which ClusterProfiles are members.
	// Default: all.
	Selector labels.Selector

	// AccessProviders are the ways to get credentials, the best first: the first that a profile has too is taken.
	// [ReadAccessProviders] reads them from a file.
	// Default: none.
	AccessProviders []AccessProvider

	// SecretNamespace is where cluster managers put Secrets with kubeconfigs for this controller, for the profiles that
	// have none of the AccessProviders: the namespace with the label x-k8s.io/cluster-inventory-consumer.
	// Default: no Secrets are read.
	SecretNamespace string

	// Allow says what kubeconfigs may do beyond naming a server and holding credentials. It limits the profiles too;
	// only the programs of AccessProviders need no permission.
	// Default: nothing.
	Allow kubeconfig.Allow
}

var _ fleet.Provider = Provider{}

// Run implements [fleet.Provider].
func (p Provider) Run(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
	if len(p.AccessProviders) == 0 && p.SecretNamespace == "" {
		return errors.New("providers/clusterprofile: set Provider.AccessProviders or Provider.SecretNamespace")
	}
	if err := validate(p.AccessProviders); err != nil {
		return fmt.Errorf("providers/clusterprofile: Provider.AccessProviders: %w", err)
	}
	const name = "clusterprofile"
	kind, ok := served.Provider{Name: name, Members: members}.Wait(ctx, local, v1alpha1.GroupVersion.WithKind("ClusterProfile").GroupKind(), versions...)
	if !ok {
		return nil // ctx is done
	}
	scheme, err := schemeWith(kind)
	if err != nil {
		return err
	}
	engine := objects.Provider[*v1alpha1.ClusterProfile]{
		Name:    name,
		Object:  &v1alpha1.ClusterProfile{},
		Scheme:  scheme,
		Members: p.members,
	}
	if p.Selector != nil {
		engine.Selectors = []labels.Selector{p.Selector}
	}
	if p.Namespace != "" {
		engine.Namespaces = []string{p.Namespace}
	}
	if p.SecretNamespace != "" {
		labelled, err := labels.Parse(profileLabel)
		if err != nil {
			return err
		}
		engine.Also = []objects.Also{{
			Object:     &corev1.Secret{},
			Selector:   labelled,
			Namespaces: []string{p.SecretNamespace},
			Keys:       func(secret client.Object) []client.ObjectKey { return []client.ObjectKey{profileOf(secret)} },
		}}
	}
	return engine.Run(ctx, local, members)
}

// versions are those of ClusterProfiles, the best first. The newer one has no field that v1alpha1 lacks, and is written the
// same, so one type serves for both. The type of v1alpha2 differs in what it leaves out: credentialProviders, and the path of
// a CA (https://github.com/kubernetes-sigs/cluster-inventory-api/blob/main/apis/v1alpha2/clusterprofile_types.go).
var versions = []string{"v1alpha2", "v1alpha1"}

// schemeWith returns a scheme that knows ClusterProfiles in one version.
func schemeWith(kind schema.GroupVersionKind) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kind, &v1alpha1.ClusterProfile{})
	scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &v1alpha1.ClusterProfileList{})
	metav1.AddToGroupVersion(scheme, kind.GroupVersion())
	return scheme, corev1.AddToScheme(scheme)
}

// profileOf returns the key of the profile to which a Secret belongs.
func profileOf(secret client.Object) client.ObjectKey {
	return client.ObjectKey{
		Namespace: cmp.Or(secret.GetLabels()[profileNamespaceLabel], metav1.NamespaceDefault),
		Name:      secret.GetLabels()[profileLabel],
	}
}

func (p Provider) members(ctx context.Context, profile *v1alpha1.ClusterProfile, also objects.Reader) ([]fleet.Member, error) {
	if !profile.DeletionTimestamp.IsZero() && !objects.LeavesWell(profile) {
		return nil, nil
	}
	name := fleet.ClusterName(profile.Name)
	if p.Namespace == "" {
		name = fleet.ClusterName(profile.Namespace + "/" + profile.Name)
	}
	m := p.access(ctx, name, profile, also)
	m.Labels = labelsOf(profile)
	return []fleet.Member{m}, nil
}

// access returns the member without its labels. The condition is asked only for what says that it cannot work: a profile
// may lack it, and whether the API server can be reached is for the fleet to find out.
func (p Provider) access(
	ctx context.Context, name fleet.ClusterName, profile *v1alpha1.ClusterProfile, also objects.Reader,
) fleet.Member {
	healthy := meta.FindStatusCondition(profile.Status.Conditions, v1alpha1.ClusterConditionControlPlaneHealthy)
	if healthy != nil && healthy.Status == metav1.ConditionFalse {
		err := objects.Waiting(ReasonNotHealthy, fmt.Sprintf(
			"the cluster manager says that the control plane is not healthy (%s)", oneline.Text(healthy.Reason, maxShown)))
		return fleet.Member{Name: name, Err: err}
	}
	if m, ok := p.byAccessProvider(name, profile); ok {
		return m
	}
	missing := fmt.Sprintf("the profile has no access provider that is configured here %q", names(p.AccessProviders))
	if p.SecretNamespace != "" {
		secret, err := p.secretOf(ctx, profile, also)
		if err != nil {
			err = objects.Waiting(ReasonSecretsUnreadable, fmt.Sprintf("%s, and the Secrets in namespace %q cannot be read; the "+
				"manager needs the rights to get, list and watch them: %s", missing, p.SecretNamespace, oneline.Text(err.Error(), maxCause)))
			return fleet.Member{Name: name, Err: err}
		}
		if secret != nil {
			return p.bySecret(name, secret)
		}
		missing += fmt.Sprintf(", and there is no Secret for it in namespace %q", p.SecretNamespace)
	}
	return fleet.Member{Name: name, Err: objects.Waiting(ReasonNoAccess, missing)}
}

// maxCause is how much of an error that comes from elsewhere is shown, in bytes.
const maxCause = 300

// byAccessProvider returns the member as the first configured access provider leads to it that the profile has too.
func (p Provider) byAccessProvider(name fleet.ClusterName, profile *v1alpha1.ClusterProfile) (m fleet.Member, ok bool) {
	// The older list counts too, where the newer does not have the name:
	// https://github.com/kubernetes-sigs/cluster-inventory-api/blob/v0.1.2/apis/v1alpha1/clusterprofile_types.go#L83
	described := slices.Concat(profile.Status.AccessProviders, profile.Status.CredentialProviders)
	for _, configured := range p.AccessProviders {
		i := slices.IndexFunc(described, func(d v1alpha1.AccessProvider) bool { return d.Name == configured.Name })
		if i < 0 {
			continue
		}
		m := configured.member(name, described[i].Cluster, p.Allow)
		if m.Err != nil {
			m.Err = fmt.Errorf("access provider %q of the profile: %w", configured.Name, m.Err)
		}
		return m, true
	}
	return fleet.Member{}, false
}

// secretOf returns the Secret with a kubeconfig for the profile, of several the oldest, or nil.
func (p Provider) secretOf(ctx context.Context, profile *v1alpha1.ClusterProfile, also objects.Reader) (*corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := also.List(ctx, list, client.InNamespace(p.SecretNamespace), client.MatchingLabels{profileLabel: profile.Name}); err != nil {
		return nil, err
	}
	list.Items = slices.DeleteFunc(list.Items, func(s corev1.Secret) bool {
		return profileOf(&s) != client.ObjectKeyFromObject(profile)
	})
	if len(list.Items) == 0 {
		return nil, nil
	}
	oldest := slices.MinFunc(list.Items, func(a, b corev1.Secret) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return &oldest, nil
}

func (p Provider) bySecret(name fleet.ClusterName, secret *corev1.Secret) fleet.Member {
	key := secretKeys[0]
	for _, k := range secretKeys {
		if _, ok := secret.Data[k]; ok {
			key = k
			break
		}
	}
	m := kubeconfig.Member(name, secret.Data[key], "", p.Allow)
	if m.Err != nil {
		m.Err = fmt.Errorf("key %q of Secret %s: %w", key, client.ObjectKeyFromObject(secret), m.Err)
	}
	return m
}

// maxProperties is how many properties of a profile become labels: the first ones.
const maxProperties = 256

// labelsOf returns the labels of the member: the properties that are valid as labels, and before them those of the
// profile.
func labelsOf(profile *v1alpha1.ClusterProfile) map[string]string {
	all := map[string]string{}
	add := func(key, value string) {
		if value != "" && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			all[key] = value
		}
	}
	for _, property := range profile.Status.Properties[:min(maxProperties, len(profile.Status.Properties))] {
		add(property.Name, property.Value)
	}
	all = objects.Unreserved(all)
	add(VersionLabel, strings.ReplaceAll(profile.Status.Version.Kubernetes, "+", "_"))
	maps.Copy(all, objects.Unreserved(profile.Labels))
	return all
}
