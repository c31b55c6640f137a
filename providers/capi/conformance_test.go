package capi_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/capi"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

func TestConformance(t *testing.T) {
	all, _ := startHub(t, 0)
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.Source {
		t.Helper()
		h := hub{all.ControlPlane, all.CreateNamespace(t)}
		line := &providertest.Line{}
		return providertest.Source{
			Provider:  func() fleet.Provider { return capi.Provider{Namespace: h.namespace} },
			Local:     hubtest.StartLocal(t, line.Through(h.Config())),
			Set:       h.describe,
			Touch:     h.touch,
			Remove:    h.remove,
			Leave:     h.leave,
			Break:     h.damage,
			Interrupt: func(*testing.T) (<-chan struct{}, func()) { return line.Cut() },
		}
	}})
}

// describe writes the Secret, and the Cluster unless it is there.
func (h hub) describe(t *testing.T, d providertest.Description) {
	t.Helper()
	h.writeSecret(t, d.Name, hubtest.Kubeconfig(t, d.Config))
	c, found := h.find(t, d.Name)
	if !found {
		h.create(t, d.Name, func(c *clusterv1.Cluster) {
			initialize(c)
			c.Labels = d.Labels
		})
		return
	}
	h.update(t, c, func(c *clusterv1.Cluster) { c.Labels = d.Labels })
}

func (h hub) find(t *testing.T, name string) (c *clusterv1.Cluster, found bool) {
	t.Helper()
	c = &clusterv1.Cluster{}
	err := h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, c)
	if !apierrors.IsNotFound(err) {
		hubtest.Must(t, err)
	}
	return c, err == nil
}

func (h hub) writeSecret(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{}
	err := h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: name + "-kubeconfig"}, secret)
	if apierrors.IsNotFound(err) {
		h.createSecret(t, name, kubeconfig)
		return
	}
	hubtest.Must(t, err)
	secret.Data["value"] = kubeconfig
	hubtest.Must(t, h.Client().Update(t.Context(), secret))
}

func (h hub) touch(t *testing.T, d providertest.Description) {
	t.Helper()
	c, _ := h.find(t, d.Name)
	h.update(t, c, func(c *clusterv1.Cluster) { c.Annotations = map[string]string{"touched": c.ResourceVersion} })
	h.updateStatus(t, c, condition(clusterv1.ClusterAvailableCondition, metav1.ConditionTrue))
}

// leave deletes the Cluster, whose member leaves well before.
func (h hub) leave(t *testing.T, name string) {
	t.Helper()
	c, _ := h.find(t, name)
	c.SetFinalizers([]string{objects.LeaveFinalizer})
	hubtest.Must(t, h.Client().Update(t.Context(), c))
	hubtest.Must(t, h.Client().Delete(t.Context(), c))
}

func (h hub) remove(t *testing.T, name string) {
	t.Helper()
	c, _ := h.find(t, name)
	hubtest.Must(t, h.Client().Delete(t.Context(), c))
}

// damage cuts off the kubeconfig in the middle.
func (h hub) damage(t *testing.T, d providertest.Description) {
	t.Helper()
	text := hubtest.Kubeconfig(t, d.Config)
	h.writeSecret(t, d.Name, text[:len(text)-10])
}
