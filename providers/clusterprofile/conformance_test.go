package clusterprofile_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/clusterprofile"
	"github.com/fleet-runtime/fleet-runtime/providers/internal/hubtest"
	"github.com/fleet-runtime/fleet-runtime/providers/objects"
	"github.com/fleet-runtime/fleet-runtime/providers/providertest"
)

func TestConformanceWithAccessProviders(t *testing.T) {
	all, _ := startHub(t, 0)
	access := clusterprofile.AccessProvider{Name: "test", ExecConfig: clientcmdv1.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Command: "/bin/false",
	}}
	providertest.Run(t, providertest.Harness{Diff: diff, New: func(t *testing.T) providertest.Source {
		t.Helper()
		h := hub{all.ControlPlane, all.CreateNamespace(t)}
		s := h.source(t, clusterprofile.Provider{
			Namespace: h.namespace, AccessProviders: []clusterprofile.AccessProvider{access},
		})
		s.Set = func(t *testing.T, d providertest.Description) {
			t.Helper()
			h.write(t, d, offers(access.Name, described(t, d)))
		}
		s.Break = func(t *testing.T, d providertest.Description) {
			t.Helper()
			broken := described(t, d)
			broken.Server = d.Config.BearerToken
			h.write(t, d, offers(access.Name, broken))
		}
		return s
	}})
}

// described is the cluster of a description, with its token in the place of what a program is told.
func described(t *testing.T, d providertest.Description) clientcmdv1.Cluster {
	t.Helper()
	return clientcmdv1.Cluster{
		Server: d.Config.Host, CertificateAuthorityData: d.Config.CAData, Extensions: []clientcmdv1.NamedExtension{
			extension(t, "client.authentication.k8s.io/exec", pluginConfig{Token: d.Config.BearerToken}),
		},
	}
}

// diff compares the token in what the program is told.
func diff(want providertest.Description, got fleet.Member) string {
	if got.Config != nil && got.Config.ExecProvider != nil {
		told, _ := got.Config.ExecProvider.Config.(*runtime.Unknown)
		var config pluginConfig
		if told == nil || json.Unmarshal(told.Raw, &config) != nil {
			return "the program is not told what the profile says"
		}
		got.Config = rest.CopyConfig(got.Config)
		got.Config.BearerToken = config.Token
	}
	return want.Diff(got)
}

func TestConformanceWithSecrets(t *testing.T) {
	all, _ := startHub(t, 0)
	providertest.Run(t, providertest.Harness{New: func(t *testing.T) providertest.Source {
		t.Helper()
		h, consumer := hub{all.ControlPlane, all.CreateNamespace(t)}, all.CreateNamespace(t)
		s := h.source(t, clusterprofile.Provider{Namespace: h.namespace, SecretNamespace: consumer})
		s.Set = func(t *testing.T, d providertest.Description) {
			t.Helper()
			h.writeSecret(t, consumer, d.Name, hubtest.Kubeconfig(t, d.Config))
			h.write(t, d, v1alpha1.ClusterProfileStatus{})
		}
		s.Break = func(t *testing.T, d providertest.Description) {
			t.Helper()
			text := hubtest.Kubeconfig(t, d.Config)
			h.writeSecret(t, consumer, d.Name, text[:len(text)-10])
		}
		return s
	}})
}

// source is a source of ClusterProfiles, but for what makes and breaks them.
func (h hub) source(t *testing.T, p clusterprofile.Provider) providertest.Source {
	t.Helper()
	line := &providertest.Line{}
	return providertest.Source{
		Provider:  func() fleet.Provider { return p },
		Local:     hubtest.StartLocal(t, line.Through(h.Config())),
		Touch:     h.touch,
		Remove:    h.remove,
		Leave:     h.leave,
		Interrupt: func(*testing.T) (<-chan struct{}, func()) { return line.Cut() },
	}
}

// write writes a profile, new or not.
func (h hub) write(t *testing.T, d providertest.Description, status v1alpha1.ClusterProfileStatus) {
	t.Helper()
	profile, found := h.find(t, d.Name)
	if !found {
		profile = h.create(t, d.Name, v1alpha1.ClusterProfileStatus{})
	}
	h.update(t, profile, func(p *v1alpha1.ClusterProfile) { p.Labels = d.Labels })
	h.updateStatus(t, profile, func(s *v1alpha1.ClusterProfileStatus) { *s = status })
}

func (h hub) find(t *testing.T, name string) (profile *v1alpha1.ClusterProfile, found bool) {
	t.Helper()
	profile = &v1alpha1.ClusterProfile{}
	err := h.Client().Get(t.Context(), client.ObjectKey{Namespace: h.namespace, Name: name}, profile)
	if !apierrors.IsNotFound(err) {
		hubtest.Must(t, err)
	}
	return profile, err == nil
}

func (h hub) writeSecret(t *testing.T, namespace, profile string, kubeconfig []byte) {
	t.Helper()
	secret := &corev1.Secret{}
	err := h.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: profile}, secret)
	if apierrors.IsNotFound(err) {
		h.createSecret(t, namespace, profile, belongsTo(h.namespace, profile), kubeconfig)
		return
	}
	hubtest.Must(t, err)
	secret.Data["Config"] = kubeconfig
	hubtest.Must(t, h.Client().Update(t.Context(), secret))
}

func (h hub) touch(t *testing.T, d providertest.Description) {
	t.Helper()
	profile, _ := h.find(t, d.Name)
	h.update(t, profile, func(p *v1alpha1.ClusterProfile) { p.Annotations = map[string]string{"touched": p.ResourceVersion} })
}

// leave deletes the profile, whose member leaves well before.
func (h hub) leave(t *testing.T, name string) {
	t.Helper()
	profile, _ := h.find(t, name)
	profile.SetFinalizers([]string{objects.LeaveFinalizer})
	hubtest.Must(t, h.Client().Update(t.Context(), profile))
	hubtest.Must(t, h.Client().Delete(t.Context(), profile))
}

func (h hub) remove(t *testing.T, name string) {
	t.Helper()
	profile, _ := h.find(t, name)
	hubtest.Must(t, h.Client().Delete(t.Context(), profile))
}
