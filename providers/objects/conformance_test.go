package objects_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

func TestConformance(t *testing.T) {
	providertest.Run(t, providertest.Harness{New: newSource, Parallel: true})
}

// newSource returns the labelled Secrets of a namespace as what a provider discovers from. Each describes a member.
func newSource(t *testing.T) providertest.Source {
	t.Helper()
	cp := pool.Share(t, mctest.Options{})
	ns, line := newNamespace(t, cp), &providertest.Line{}
	return providertest.Source{
		Local: startLocal(t, line.Through(cp.Config())),
		Provider: func() fleet.Provider {
			return objects.Provider[*corev1.Secret]{
				Object: &corev1.Secret{}, Selectors: []labels.Selector{labelled(ours)},
				Namespaces: []string{ns.string}, Members: fromFields,
			}
		},
		Set: func(_ *testing.T, d providertest.Description) { ns.put(secretOf(d.Name, d)) },
		Touch: func(_ *testing.T, d providertest.Description) {
			secret := secretOf(d.Name, d)
			secret.Annotations = map[string]string{"touched": "true"}
			ns.put(secret)
		},
		Remove: func(_ *testing.T, name string) {
			ns.delete(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.string, Name: name}})
		},
		Rename: func(_ *testing.T, from, to string) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.string, Name: from}}
			update(ns, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"name": []byte(to)} })
		},
		Break: func(_ *testing.T, d providertest.Description) {
			secret := secretOf(d.Name, d)
			delete(secret.Data, "host")
			ns.put(secret)
		},
		// Of two that were created in one second, the first by name is the older.
		Duplicate: func(_ *testing.T, d providertest.Description) { ns.put(secretOf("z-"+d.Name, d)) },
		Interrupt: func(*testing.T) (noticed <-chan struct{}, restore func()) { return line.Cut() },
	}
}

// secretOf returns a Secret with the fields of the description.
func secretOf(name string, d providertest.Description) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ours: "true"}},
		Data: map[string][]byte{
			"name": []byte(d.Name), "host": []byte(d.Config.Host), "token": []byte(d.Config.BearerToken), "ca": d.Config.CAData,
		},
	}
	maps.Copy(secret.Labels, d.Labels)
	return secret
}

// put creates the Secret, or puts it in the place of the one before.
func (n namespace) put(secret *corev1.Secret) {
	n.t.Helper()
	secret.Namespace = n.string
	err := n.cl.Create(n.t.Context(), secret.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		err = n.cl.Update(n.t.Context(), secret)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// fromFields makes a member of a Secret of secretOf.
func fromFields(_ context.Context, secret *corev1.Secret, _ objects.Reader) ([]fleet.Member, error) {
	m := fleet.Member{Name: fleet.ClusterName(secret.Data["name"]), Labels: secret.Labels}
	if host := secret.Data["host"]; len(host) > 0 {
		m.Config = &rest.Config{
			Host: string(host), BearerToken: string(secret.Data["token"]),
			TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data["ca"]},
		}
	} else {
		m.Err = errors.New("there is no host")
	}
	return []fleet.Member{m}, nil
}
