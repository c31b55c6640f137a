package objects_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

// This file needs no other of its package: begin with a copy of it where you test a provider of your own.

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// ours is the label of the Secrets that describe members.
const ours = "ours"

func labelled(key string) labels.Selector { return labels.SelectorFromSet(labels.Set{key: "true"}) }

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
		Leave: func(_ *testing.T, name string) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.string, Name: name}}
			update(ns, secret, func(s *corev1.Secret) { s.Finalizers = []string{objects.LeaveFinalizer} })
			ns.delete(secret)
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

// startLocal starts what a manager would start for its local cluster.
func startLocal(t *testing.T, config *rest.Config) cluster.Cluster {
	t.Helper()
	local, err := cluster.New(config, func(o *cluster.Options) { o.Logger = logr.Discard() })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- local.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return local
}

// namespace is where a test keeps its objects.
type namespace struct {
	t  *testing.T
	cl client.Client
	string
}

func newNamespace(t *testing.T, cp *mctest.ControlPlane) namespace {
	t.Helper()
	return namespace{t, cp.Client(), cp.CreateNamespace(t)}
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

// update changes an object in one request.
func update[T client.Object](n namespace, obj T, change func(T)) {
	n.t.Helper()
	before := obj.DeepCopyObject().(T)
	change(obj)
	if err := n.cl.Patch(n.t.Context(), obj, client.MergeFrom(before)); err != nil {
		n.t.Fatal(err)
	}
}

func (n namespace) delete(obj client.Object) {
	n.t.Helper()
	if err := n.cl.Delete(n.t.Context(), obj); err != nil {
		n.t.Fatal(err)
	}
}
