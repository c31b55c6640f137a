package kubeconfig_test

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

// dialect is how Secrets describe a cluster.
type dialect struct {
	provider kubeconfig.Provider // without a namespace
	// secret returns the Secret of a cluster with a text. One without a name is named by whoever creates it: then the
	// name of the member is elsewhere, and several Secrets can have the same.
	secret func(d providertest.Description, text []byte) *corev1.Secret
	// text returns how the cluster is reached. It is a kubeconfig unless it is set.
	text func(t *testing.T, config *rest.Config) []byte
}

func dialects() map[string]dialect {
	labelled := func(name, label string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}}, Data: data}
	}
	only := func(f kubeconfig.Format) kubeconfig.Provider {
		return kubeconfig.Provider{Formats: []kubeconfig.Format{f}}
	}
	const nameLabel = "name-of-member"
	named := kubeconfig.Provider{Name: func(s *corev1.Secret, _ string) fleet.ClusterName {
		return fleet.ClusterName(s.Labels[nameLabel])
	}}
	return map[string]dialect{
		"ours": {secret: func(d providertest.Description, text []byte) *corev1.Secret {
			return labelled(d.Name, kubeconfig.Label, withKey("kubeconfig", text))
		}},
		"multicluster-runtime, with names from a label": {provider: named, secret: func(d providertest.Description, text []byte) *corev1.Secret {
			secret := labelled("", kubeconfig.MulticlusterRuntimeLabel, withKey("kubeconfig", text))
			secret.Labels[nameLabel] = d.Name
			return secret
		}},
		"Cluster API": {provider: only(kubeconfig.ClusterAPI()), secret: func(d providertest.Description, text []byte) *corev1.Secret {
			return clusterAPISecret(d.Name, "kubeconfig", withKey("value", text))
		}},
		"Flux": {provider: only(kubeconfig.Flux(mine)), secret: func(d providertest.Description, text []byte) *corev1.Secret {
			return labelled(d.Name, "mine", withKey("value.yaml", text))
		}},
		"Istio": {provider: only(kubeconfig.Istio()), secret: func(d providertest.Description, text []byte) *corev1.Secret {
			return labelled("", "istio/multiCluster", withKey(d.Name, text))
		}},
		"Argo CD": {
			provider: only(kubeconfig.ArgoCD()),
			secret: func(d providertest.Description, text []byte) *corev1.Secret {
				return argoCDSecret("", map[string][]byte{"name": []byte(d.Name), "server": []byte(d.Config.Host), "config": text})
			},
			text: func(t *testing.T, config *rest.Config) []byte {
				t.Helper()
				return toJSON(t, object{"tlsClientConfig": object{"caData": config.CAData}, "bearerToken": config.BearerToken})
			},
		},
	}
}

func TestConformance(t *testing.T) {
	cp := pool.Share(t, mctest.Options{})
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Harness{Parallel: true, New: func(t *testing.T) providertest.Source {
				t.Helper()
				return newScribe(cp, cp.CreateNamespace(t), d).source(t)
			}})
		})
	}
}

// scribe writes the Secrets that a provider discovers from.
type scribe struct {
	cp        *mctest.ControlPlane
	namespace string
	dialect

	secrets   map[string][]*corev1.Secret // by the name of the member, the oldest first
	described map[string]providertest.Description
	created   int
}

func newScribe(cp *mctest.ControlPlane, namespace string, d dialect) *scribe {
	if d.text == nil {
		d.text = func(t *testing.T, config *rest.Config) []byte {
			t.Helper()
			text, err := mctest.Kubeconfig(config)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	return &scribe{
		cp: cp, namespace: namespace, dialect: d,
		secrets: map[string][]*corev1.Secret{}, described: map[string]providertest.Description{},
	}
}

func (s *scribe) source(t *testing.T) providertest.Source {
	t.Helper()
	line := &providertest.Line{}
	source := providertest.Source{
		Provider: func() fleet.Provider {
			p := s.provider
			p.Namespace = s.namespace
			return p
		},
		Local:     startLocal(t, line.Through(s.cp.Config())),
		Set:       func(t *testing.T, d providertest.Description) { t.Helper(); s.write(t, d, s.text(t, d.Config)) },
		Touch:     s.touch,
		Remove:    s.remove,
		Leave:     s.leave,
		Break:     s.damage,
		Interrupt: func(*testing.T) (<-chan struct{}, func()) { return line.Cut() },
	}
	if s.secret(providertest.Description{Name: "any", Config: &rest.Config{}}, nil).Name == "" {
		source.Rename, source.Duplicate = s.rename, s.duplicate
	}
	return source
}

// write writes the oldest Secret of a member, or the first.
func (s *scribe) write(t *testing.T, d providertest.Description, text []byte) {
	t.Helper()
	known := s.secrets[d.Name]
	if len(known) == 0 {
		s.create(t, d, text)
		return
	}
	s.described[d.Name] = d
	s.update(t, known[0], d, text)
}

func (s *scribe) create(t *testing.T, d providertest.Description, text []byte) {
	t.Helper()
	secret := s.secret(d, text)
	s.created++
	if secret.Name == "" {
		secret.Name = fmt.Sprintf("secret-%03d", s.created) // of two in the same second, the younger comes later
	}
	maps.Copy(secret.Labels, d.Labels)
	s.secrets[d.Name] = append(s.secrets[d.Name], createIn(t, s.cp, s.namespace, secret))
	s.described[d.Name] = d
}

func (s *scribe) update(t *testing.T, secret *corev1.Secret, d providertest.Description, text []byte) {
	t.Helper()
	fresh := s.secret(d, text)
	secret.Data, secret.Labels = fresh.Data, fresh.Labels
	maps.Copy(secret.Labels, d.Labels)
	if err := s.cp.Client().Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func (s *scribe) touch(t *testing.T, d providertest.Description) {
	t.Helper()
	secret := s.secrets[d.Name][0]
	secret.Annotations = map[string]string{"touched": secret.ResourceVersion}
	s.update(t, secret, d, append(s.text(t, d.Config), '\n'))
}

// leave deletes a Secret, whose member leaves well before.
func (s *scribe) leave(t *testing.T, name string) {
	t.Helper()
	secret := s.secrets[name][0].DeepCopy()
	before := secret.DeepCopy()
	secret.Finalizers = []string{objects.LeaveFinalizer}
	if err := s.cp.Client().Patch(t.Context(), secret, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.remove(t, name)
}

func (s *scribe) remove(t *testing.T, name string) {
	t.Helper()
	if err := s.cp.Client().Delete(t.Context(), s.secrets[name][0]); err != nil {
		t.Fatal(err)
	}
	s.secrets[name] = s.secrets[name][1:]
}

func (s *scribe) rename(t *testing.T, from, to string) {
	t.Helper()
	d := s.described[from]
	d.Name = to
	s.secrets[to], s.secrets[from] = s.secrets[from], nil
	s.write(t, d, s.text(t, d.Config))
}

// damage cuts off the end, and leaves the credentials.
func (s *scribe) damage(t *testing.T, d providertest.Description) {
	t.Helper()
	text := s.text(t, d.Config)
	s.write(t, d, append(text[:len(text)-2:len(text)-2], "\n\t["...))
}

func (s *scribe) duplicate(t *testing.T, d providertest.Description) {
	t.Helper()
	s.create(t, d, s.text(t, d.Config))
}
