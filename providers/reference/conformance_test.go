package reference_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
	"github.com/fleet-runtime/fleet-runtime/providers/reference"
)

// Each cluster is the Secret that two Kustomizations name.
func TestConformanceOfSecretsThatManyName(t *testing.T) {
	all, _ := startHub(t, 0)
	format := reference.Flux()
	format.Kinds = format.Kinds[:1] // what is there at the start is complete when one engine has begun
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.Source {
		t.Helper()
		h := hub{all.ControlPlane, all.CreateNamespace(t)}
		source := h.source(t, reference.Provider{Format: format, Namespaces: []string{h.namespace}})
		source.Set = func(t *testing.T, d providertest.Description) {
			t.Helper()
			h.writeSecret(t, d.Name, d.Labels, map[string][]byte{"value": hubtest.Kubeconfig(t, d.Config)})
			for _, of := range []string{"apps-of-", "infra-of-"} {
				h.write(t, object(kustomizations, h.namespace, of+d.Name, fields{"spec.kubeConfig.secretRef.name": d.Name}))
			}
		}
		source.Touch = func(t *testing.T, d providertest.Description) {
			t.Helper()
			h.touch(t, object(kustomizations, h.namespace, "apps-of-"+d.Name, nil))
		}
		source.Remove = func(t *testing.T, name string) {
			t.Helper()
			for _, of := range []string{"apps-of-", "infra-of-"} {
				hubtest.Must(t, h.Client().Delete(t.Context(), object(kustomizations, h.namespace, of+name, nil)))
			}
		}
		source.Break = func(t *testing.T, d providertest.Description) {
			t.Helper()
			text := hubtest.Kubeconfig(t, d.Config)
			h.writeSecret(t, d.Name, d.Labels, map[string][]byte{"value": text[:len(text)-10]})
		}
		return source
	}})
}

// Each cluster is an object without a namespace, with the address, and a Secret with a token.
func TestConformanceOfTokens(t *testing.T) {
	all, _ := startHub(t, 0)
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.Source {
		t.Helper()
		h := hub{all.ControlPlane, all.CreateNamespace(t)}
		const of = "test.fleet-runtime.dev/case"
		source := h.source(t, reference.Provider{
			Format: reference.Karmada(h.namespace), Selector: labels.SelectorFromSet(labels.Set{of: h.namespace}),
		})
		write := func(t *testing.T, d providertest.Description, address string) {
			t.Helper()
			h.writeSecret(t, d.Name, nil, map[string][]byte{"token": []byte(d.Config.BearerToken), "caBundle": d.Config.CAData})
			cluster := object(karmadas, "", d.Name, fields{
				"spec.apiEndpoint": address, "spec.secretRef": map[string]any{"namespace": h.namespace, "name": d.Name},
			})
			cluster.SetLabels(labels.Merge(d.Labels, labels.Set{of: h.namespace}))
			h.write(t, cluster)
		}
		source.Set = func(t *testing.T, d providertest.Description) {
			t.Helper()
			write(t, d, d.Config.Host)
		}
		source.Break = func(t *testing.T, d providertest.Description) {
			t.Helper()
			write(t, d, "https://"+d.Config.BearerToken+"@"+d.Name)
		}
		source.Touch = func(t *testing.T, d providertest.Description) {
			t.Helper()
			h.touch(t, object(karmadas, "", d.Name, nil))
		}
		source.Remove = func(t *testing.T, name string) {
			t.Helper()
			hubtest.Must(t, h.Client().Delete(t.Context(), object(karmadas, "", name, nil)))
		}
		t.Cleanup(func() { h.clear(t) })
		return source
	}})
}

// source is a source of objects, but for what makes and breaks them.
func (h hub) source(t *testing.T, p reference.Provider) providertest.Source {
	t.Helper()
	line := &providertest.Line{}
	return providertest.Source{
		Provider:  func() fleet.Provider { return p },
		Local:     hubtest.StartLocal(t, line.Through(h.Config())),
		Interrupt: func(*testing.T) (<-chan struct{}, func()) { return line.Cut() },
	}
}

// write writes an object, new or not.
func (h hub) write(t *testing.T, want *unstructured.Unstructured) {
	t.Helper()
	obj := object(want.GroupVersionKind(), want.GetNamespace(), want.GetName(), nil)
	_, err := controllerutil.CreateOrUpdate(t.Context(), h.Client(), obj, func() error {
		obj.Object["spec"] = want.Object["spec"]
		obj.SetLabels(want.GetLabels())
		return nil
	})
	hubtest.Must(t, err)
}

func (h hub) writeSecret(t *testing.T, name string, labels map[string]string, data map[string][]byte) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}}
	_, err := controllerutil.CreateOrUpdate(t.Context(), h.Client(), secret, func() error {
		secret.Labels, secret.Data = labels, data
		return nil
	})
	hubtest.Must(t, err)
}

func (h hub) touch(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	hubtest.Must(t, h.Client().Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
	h.change(t, obj, func() { obj.SetAnnotations(map[string]string{"touched": obj.GetResourceVersion()}) })
}

// clear deletes the objects of all kinds, which the next test or case would find.
func (h hub) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), hubtest.Patience)
	defer cancel()
	for _, kind := range append(namespaced(), clusterScoped()...) {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(kind)
		hubtest.Must(t, h.Client().List(ctx, all))
		for i := range all.Items {
			hubtest.Must(t, h.Client().Delete(ctx, &all.Items[i]))
		}
	}
}
