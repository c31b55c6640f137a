package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var hosts = []string{"nginx.example.com", "api.example.com"}

// TestIngressesOfAllClustersTrustTheSameClients is AS-10. What issues the certificates is examples/ingress-tls, whose own tests have
// step 4 but for the key of the authority.
func TestIngressesOfAllClustersTrustTheSameClients(t *testing.T) {
	t.Parallel()
	w := start(t, primary, secondary1, secondary2)
	one, two := w.members[secondary1], w.members[secondary2]
	issuer := w.issues(t)
	create(t, w.Local, secretFor("ca-secret", "hosts", hosts[0]+","+hosts[1]), secretFor("cli-secret", "client", "nginx"))
	r := replicator("secure", w.names, secured())
	r.Spec.References = []v1alpha1.Reference{{Kind: "Secret", Name: "ca-secret"}, {Kind: "Secret", Name: "cli-secret"}}
	create(t, w.Local, r)

	t.Run("1 each target has the Secrets and the Ingress", func(t *testing.T) {
		for _, name := range w.names {
			has(t, w.members[name], "ca-secret", "tls.crt", "tls.key", "ca.crt")
			has(t, w.members[name], "cli-secret", "client.crt", "client.key")
			becomes(t, w.members[name], secured(), "asks for clients' certificates", func(i *networkingv1.Ingress) bool {
				return i.Annotations["nginx.ingress.kubernetes.io/auth-tls-secret"] == tenant+"/ca-secret" && slices.Equal(i.Spec.TLS[0].Hosts, hosts)
			})
		}
		w.synced("secure")
	})
	server, cli := get(t, one, secret("ca-secret")), get(t, w.Local, secret("cli-secret"))
	t.Run("2 the primary's client is let in by secondary1, and no other", func(t *testing.T) {
		for _, host := range hosts {
			if err := handshake(t, server, cli, host); err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
		create(t, w.Local, secretFor("foreign", "client", "nginx", "another-authority"))
		foreign := has(t, w.Local, "foreign", "client.crt", "client.key")
		if handshake(t, server, nil, hosts[0]) == nil || handshake(t, server, foreign, hosts[0]) == nil || handshake(t, server, cli, "evil.example.com") == nil {
			t.Error("a client without a certificate, of another authority, or of another host, is let in")
		}
	})
	t.Run("3 what is deleted comes back, of the same authority", func(t *testing.T) {
		remove(t, two, secret("ca-secret"))
		if now := has(t, two, "ca-secret", "ca.crt"); !bytes.Equal(now.Data["ca.crt"], server.Data["ca.crt"]) {
			t.Error("it is of another authority")
		}
	})
	t.Run("3 after a restart of both, nothing is issued anew", func(t *testing.T) {
		before := get(t, one, secret("ca-secret"))
		issuer.Kill()
		w.program.Kill()
		w.run()
		w.issues(t)
		for _, cp := range []*mctest.ControlPlane{w.Local, one} { // of which each is looked at by one of them
			spoil := client.RawPatch(types.MergePatchType, []byte(`{"data":{"ca.crt":"c3BvaWxlZA=="}}`)) // also while the copy is being changed
			must(t, cp.Client().Patch(t.Context(), secret("ca-secret"), spoil))
			becomes(t, cp, secret("ca-secret"), "is as before", func(s *corev1.Secret) bool {
				return bytes.Equal(s.Data["ca.crt"], before.Data["ca.crt"])
			})
		}
		for _, cp := range []*mctest.ControlPlane{w.Local, one} {
			if now := get(t, cp, secret("ca-secret")); !bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"]) {
				t.Errorf("%s has another certificate", cp.Name)
			}
		}
	})
	t.Run("3 another host changes one Secret and touches no other", func(t *testing.T) {
		before := uids(t, two)
		patch := []byte(`{"metadata":{"annotations":{"ingress-tls.example.com/hosts":"www.example.com"}}}`)
		must(t, w.Local.Client().Patch(t.Context(), secret("ca-secret"), client.RawPatch(types.MergePatchType, patch)))
		stage.Soon(t, "the certificate in secondary2 is for the host", func() bool {
			return handshake(t, get(t, two, secret("ca-secret")), cli, "www.example.com") == nil
		})
		if now := uids(t, two); !slices.Equal(before, now) {
			t.Errorf("the Secrets are %q, and were %q", now, before)
		}
	})
	t.Run("4 the key of the authority is in the primary alone", func(t *testing.T) {
		key := has(t, w.Local, "ingress-authority", "tls.key").Data["tls.key"]
		for _, cp := range []*mctest.ControlPlane{one, two} {
			all := &corev1.SecretList{}
			must(t, cp.Client().List(t.Context(), all))
			for _, s := range all.Items {
				for name, value := range s.Data {
					if bytes.Contains(value, key) {
						t.Errorf("%s of %s in %s has it", name, s.Name, cp.Name)
					}
				}
			}
		}
	})
}

// issues starts the program that issues certificates, in the hub.
func (w *world) issues(t *testing.T) *stage.Program {
	t.Helper()
	kubeconfig, err := mctest.Kubeconfig(w.Local.Config())
	must(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, os.WriteFile(file, kubeconfig, 0o600))
	return stage.StartOther(w.t, "../../examples/ingress-tls", "--kubeconfig", file, "--namespace", tenant, "--metrics", "0")
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
}

// secretFor asks for a certificate, by the authority of a name if that is given.
func secretFor(name, what, value string, authority ...string) *corev1.Secret {
	s := secret(name)
	s.Labels = map[string]string{v1alpha1.SourceLabel: "true"}
	s.Annotations = map[string]string{
		"ingress-tls.example.com/authority": append(authority, "ingress-authority")[0], "ingress-tls.example.com/" + what: value,
	}
	return s
}

// has waits until a Secret has these keys.
func has(t *testing.T, cp *mctest.ControlPlane, name string, keys ...string) *corev1.Secret {
	t.Helper()
	becomes(t, cp, secret(name), "has a certificate", func(s *corev1.Secret) bool {
		return !slices.ContainsFunc(keys, func(key string) bool { return len(s.Data[key]) == 0 })
	})
	return get(t, cp, secret(name))
}

func uids(t *testing.T, cp *mctest.ControlPlane) []string {
	t.Helper()
	list := &corev1.SecretList{}
	must(t, cp.Client().List(t.Context(), list, client.InNamespace(tenant)))
	all := make([]string, 0, len(list.Items))
	for _, s := range list.Items {
		all = append(all, s.Name+" "+string(s.UID))
	}
	return all
}

// secured is an Ingress that asks clients for certificates.
func secured() *networkingv1.Ingress {
	i := ingress("secured")
	i.Annotations = map[string]string{
		"nginx.ingress.kubernetes.io/auth-tls-verify-client": "on", "nginx.ingress.kubernetes.io/auth-tls-secret": tenant + "/ca-secret",
	}
	i.Spec.TLS = []networkingv1.IngressTLS{{Hosts: hosts, SecretName: "ca-secret"}}
	return i
}

// handshake is one with the server of a Secret, which asks for the certificate of a client.
func handshake(t *testing.T, server, cli *corev1.Secret, host string) error {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(server.Data["ca.crt"])
	certificate, err := tls.X509KeyPair(server.Data["tls.crt"], server.Data["tls.key"])
	must(t, err)
	config := &tls.Config{RootCAs: trusted, ServerName: host, MinVersion: tls.VersionTLS13}
	if cli != nil {
		own, err := tls.X509KeyPair(cli.Data["client.crt"], cli.Data["client.key"])
		must(t, err)
		config.Certificates = []tls.Certificate{own}
	}
	return stage.Handshake(t, &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted, MinVersion: tls.VersionTLS13,
	}, config)
}
