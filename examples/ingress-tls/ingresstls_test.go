package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

const namespace = "web"

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(stage.Run(m, &pool, main)) }

// TestSecretsGetTheCertificatesThatTheyAskFor with the rights of the manifest and no others. That members get them is AS-10, and
// tested with the Replicator.
func TestSecretsGetTheCertificatesThatTheyAskFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run("--validity", "1h")
	stage.Apply(t, w.hub, "secrets.yaml")
	server, cli := w.issued("ca-secret", "tls.crt"), w.issued("cli-secret", "client.crt")
	authority := w.issued("ingress-authority", "tls.crt")

	t.Run("a Replicator may copy them, and not the authority", func(t *testing.T) {
		for _, s := range []*corev1.Secret{server, cli, authority} {
			if may := s.Labels["replicator.fleet-runtime.dev/source"] == "true"; may == (s == authority) {
				t.Errorf("%s has the labels %v", s.Name, s.Labels)
			}
		}
	})
	t.Run("a server and a client trust each other", func(t *testing.T) {
		for _, host := range []string{"nginx.example.com", "api.example.com"} {
			if err := handshake(t, server, cli, host); err != nil {
				t.Error(host, err)
			}
		}
		if handshake(t, server, nil, "nginx.example.com") == nil || handshake(t, server, cli, "evil.example.com") == nil {
			t.Error("a client without a certificate, or of another host, is let in")
		}
	})
	t.Run("the key of the authority is in its Secret alone", func(t *testing.T) {
		for name, value := range server.Data {
			if strings.Contains(string(authority.Data["tls.key"]), strings.TrimSpace(string(value))) {
				t.Errorf("%s is the authority's key", name)
			}
		}
		want := []string{"ca.crt", "tls.crt", "tls.key"}
		if diff := cmp.Diff(want, keys(server)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("what is deleted is issued anew by the same authority", func(t *testing.T) {
		must(t, w.client.Delete(t.Context(), cli))
		stage.Apply(t, w.hub, "secrets.yaml")
		again := w.issued("cli-secret", "client.crt")
		if err := handshake(t, server, again, "nginx.example.com"); err != nil {
			t.Error(err)
		}
	})
	t.Run("after a restart nothing is issued anew", func(t *testing.T) {
		p.Kill()
		p = w.run("--validity", "1h")
		spoiled := w.get("ca-secret") // which is looked at, with its authority, once it is whole again
		spoiled.Data["ca.crt"] = []byte("spoiled")
		must(t, w.client.Update(t.Context(), spoiled))
		stage.Soon(t, "it is whole again", func() bool { return string(w.get("ca-secret").Data["ca.crt"]) == string(server.Data["ca.crt"]) })
		if diff := cmp.Diff(server.Data, w.get("ca-secret").Data); diff != "" {
			t.Error("another certificate was issued:", diff)
		}
		if now := w.get("ingress-authority"); now.ResourceVersion != authority.ResourceVersion {
			t.Error("the authority was written to")
		}
	})
	t.Run("another host", func(t *testing.T) {
		patch := []byte(`{"metadata":{"annotations":{"` + hostsAnnotation + `":"www.example.com"}}}`)
		must(t, w.client.Patch(t.Context(), w.get("ca-secret"), client.RawPatch(types.MergePatchType, patch)))
		stage.Soon(t, "the certificate is for it", func() bool {
			return handshake(t, w.get("ca-secret"), w.get("cli-secret"), "www.example.com") == nil
		})
		now := w.get("ca-secret")
		if now.UID != server.UID || w.get("ingress-authority").ResourceVersion != authority.ResourceVersion {
			t.Error("more than the certificate has changed")
		}
	})
	t.Run("what cannot be issued is told", func(t *testing.T) { w.refuses(t) })
	t.Run("no right is missing, and none is too much", func(t *testing.T) { w.account.NeedsAll(t) })
	for _, key := range []string{"tls.key", "tls.crt"} {
		if lines := p.Lines(string(authority.Data[key][30:60])); len(lines) > 0 {
			t.Errorf("the log has the authority's %s", key)
		}
	}
}

// refuses asks for what cannot be issued.
func (w *world) refuses(t *testing.T) {
	t.Helper()
	must(t, w.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "password"}, StringData: map[string]string{"tls.crt": "secret", "tls.key": "secret"},
	}))
	must(t, w.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "torn"}, Type: authorityType, StringData: map[string]string{"tls.crt": "secret"},
	}))
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"neither":           {nil, "set one of"},
		"both":              {map[string]string{hostsAnnotation: "a.b", clientAnnotation: "a"}, "set one of"},
		"no-host":           {map[string]string{hostsAnnotation: "a.b, "}, `"" is no host`},
		"an-address":        {map[string]string{hostsAnnotation: "http://a.b"}, "is no host"},
		"a-long-host":       {map[string]string{hostsAnnotation: strings.Repeat("a", 300)}, "is no host"},
		"many-hosts":        {map[string]string{hostsAnnotation: strings.Repeat("a.b,", 100) + "a.b"}, "has 101 hosts"},
		"no-client":         {map[string]string{clientAnnotation: ""}, "1 to 64"},
		"a-long-client":     {map[string]string{clientAnnotation: strings.Repeat("a", 65)}, "1 to 64"},
		"another-secret":    {map[string]string{clientAnnotation: "a", authorityAnnotation: "password"}, "is not of type"},
		"a-torn-authority":  {map[string]string{clientAnnotation: "a", authorityAnnotation: "torn"}, "not PEM"},
		"no-authority-name": {map[string]string{clientAnnotation: "a", authorityAnnotation: "../web"}, "is no name"},
	} {
		w.ask(name, tc.annotations)
		stage.Soon(t, name+" is told", func() bool { return strings.Contains(w.said(name), tc.want) })
		if said := w.said(name); strings.Contains(said, "secret\"") || len(w.get(name).Data) > 0 {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestCertificatesAreRenewedAndOldOnesAreTakenUntilTheyExpire: when that is, pki's tests say.
func TestCertificatesAreRenewedAndOldOnesAreTakenUntilTheyExpire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("--validity", "30s")
	stage.Apply(t, w.hub, "secrets.yaml")
	before := w.issued("cli-secret", "client.crt")
	old := certificateIn(t, before, "client.crt")
	stage.Eventually(t, "the client's certificate is renewed", func() bool {
		return string(w.get("cli-secret").Data["client.crt"]) != string(before.Data["client.crt"])
	})
	renewed := certificateIn(t, w.get("cli-secret"), "client.crt")
	if renewed.SerialNumber.Cmp(old.SerialNumber) == 0 {
		t.Errorf("both have the serial number %s", old.SerialNumber)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.get("ca-secret").Data["ca.crt"])
	for _, c := range []*x509.Certificate{old, renewed} {
		opts := x509.VerifyOptions{Roots: roots, CurrentTime: c.NotAfter.Add(-time.Second), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if _, err := c.Verify(opts); err != nil {
			t.Errorf("until it expires, servers take it: %v", err)
		}
	}
}

// world is a hub, and the account of the program in it.
type world struct {
	*testing.T
	hub     *mctest.ControlPlane
	client  client.Client
	account *stage.Account
}

func newWorld(t *testing.T) *world {
	t.Helper()
	hub := pool.Start(t, mctest.Options{}).Local
	return &world{t, hub, hub.Client(), stage.NewAccount(t, hub, mctest.Rights{File: "rbac/hub.yaml"})}
}

func (w *world) run(flags ...string) *stage.Program {
	w.Helper()
	return stage.Start(w.T, append(flags, "--kubeconfig", w.account.File(w.T), "--namespace", namespace, "--metrics", "0")...)
}

// ask creates a Secret that asks for a certificate.
func (w *world) ask(name string, annotations map[string]string) {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{authorityAnnotation: "ingress-authority"}}}
	maps.Copy(secret.Annotations, annotations)
	must(w.T, w.client.Create(w.Context(), secret))
}

func (w *world) get(name string) *corev1.Secret {
	w.Helper()
	secret := &corev1.Secret{}
	must(w.T, client.IgnoreNotFound(w.client.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, secret)))
	return secret
}

// issued waits for what a Secret is to have.
func (w *world) issued(name, key string) *corev1.Secret {
	w.Helper()
	stage.Soon(w.T, fmt.Sprintf("the Secret %s has %s", name, key), func() bool { return len(w.get(name).Data[key]) > 0 })
	return w.get(name)
}

// said is what warnings about a Secret say.
func (w *world) said(name string) string {
	w.Helper()
	var all eventsv1.EventList
	must(w.T, w.client.List(w.Context(), &all, client.InNamespace(namespace)))
	var said strings.Builder
	for _, e := range all.Items {
		if e.Regarding.Name == name && e.Type == corev1.EventTypeWarning {
			said.WriteString(e.Note)
		}
	}
	return said.String()
}

func keys(secret *corev1.Secret) []string {
	var all []string
	for _, name := range []string{"ca.crt", "ca.key", "client.crt", "client.key", "tls.crt", "tls.key"} {
		if len(secret.Data[name]) > 0 {
			all = append(all, name)
		}
	}
	return all
}

func certificateIn(t *testing.T, secret *corev1.Secret, key string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(secret.Data[key])
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return c
}

// handshake is one of a client with the server of a Secret, which asks for the certificate of a client.
func handshake(t *testing.T, server, cli *corev1.Secret, host string) error {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(server.Data["ca.crt"])
	certificate, err := tls.X509KeyPair(server.Data["tls.crt"], server.Data["tls.key"])
	must(t, err)
	config := &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS13}
	if cli != nil {
		own, err := tls.X509KeyPair(cli.Data["client.crt"], cli.Data["client.key"])
		must(t, err)
		config.Certificates = []tls.Certificate{own}
	}
	return stage.Handshake(t, &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	}, config)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
