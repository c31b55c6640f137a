package access_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/access"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

func TestConformance(t *testing.T) {
	shared := shareHub(t)
	providertest.Run(t, providertest.Harness{
		Diff: diff,
		New: func(t *testing.T) providertest.Source {
			t.Helper()
			h := hub{shared.ControlPlane, shared.CreateNamespace(t)}
			line := &providertest.Line{}
			return providertest.Source{
				Provider:  func() fleet.Provider { return &access.Provider{Namespace: h.namespace} },
				Local:     hubtest.StartLocal(t, line.Through(h.Config())),
				Set:       h.describe,
				Touch:     h.touch,
				Remove:    h.remove,
				Leave:     h.leave,
				Break:     h.damage,
				Interrupt: func(*testing.T) (<-chan struct{}, func()) { return line.Cut() },
			}
		},
	})
}

// account names one for the credentials of a description: an access names the account alone. What is reported of a member does
// not show that, so it is also the name of the server.
func account(d providertest.Description) string {
	return fmt.Sprintf("account-%x", sha256.Sum256([]byte(d.Config.BearerToken)))[:20]
}

// diff compares what an access says. The token of a member is nowhere before the member is connected.
func diff(want providertest.Description, got fleet.Member) string {
	switch {
	case got.Config == nil:
		return "the member has no config"
	case got.Config.Host != want.Config.Host || !bytes.Equal(got.Config.CAData, want.Config.CAData):
		return "the member has another server or CA"
	case got.Config.BearerToken != "" || got.Config.WrapTransport == nil:
		return "the token of the member is in its config"
	case got.Config.ServerName != account(want):
		return "the member has another account"
	}
	for key, value := range want.Labels {
		if got.Labels[key] != value {
			return fmt.Sprintf("the label %s is %q, want %q", key, got.Labels[key], value)
		}
	}
	return ""
}

func (h hub) describe(t *testing.T, d providertest.Description) {
	t.Helper()
	a := &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: d.Name}}
	err := h.Client().Get(t.Context(), client.ObjectKeyFromObject(a), a)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	a.Labels = d.Labels
	a.Spec = v1alpha1.ClusterAccessSpec{
		Server: d.Config.Host, CABundle: d.Config.CAData, TLSServerName: account(d), Federated: &v1alpha1.Federated{ServiceAccountName: account(d)},
	}
	if err != nil {
		hubtest.Must(t, h.Client().Create(t.Context(), a))
		return
	}
	hubtest.Must(t, h.Client().Update(t.Context(), a))
}

func (h hub) touch(t *testing.T, d providertest.Description) {
	t.Helper()
	h.update(t, d.Name, func(a *v1alpha1.ClusterAccess) { a.Annotations = map[string]string{"touched": a.ResourceVersion} })
}

func (h hub) remove(t *testing.T, name string) {
	t.Helper()
	hubtest.Must(t, h.Client().Delete(t.Context(), h.get(t, name)))
}

// leave deletes the access, whose member leaves well before.
func (h hub) leave(t *testing.T, name string) {
	t.Helper()
	h.update(t, name, func(a *v1alpha1.ClusterAccess) { a.Finalizers = []string{objects.LeaveFinalizer} })
	h.remove(t, name)
}

// damage puts a CA there that cannot be read.
func (h hub) damage(t *testing.T, d providertest.Description) {
	t.Helper()
	config := rest.CopyConfig(d.Config)
	config.CAData = []byte("-----BEGIN CERTIFICATE-----\n" + d.Config.BearerToken)
	d.Config = config
	h.describe(t, d)
}
