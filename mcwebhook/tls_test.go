package mcwebhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

func writeFile(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// show has an API server show a certificate to webhooks, as docs/admission.md says.
func show(t *testing.T, cp *mctest.ControlPlane, certificate authority) {
	t.Helper()
	folder := t.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.AuthInfos["*"] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate.cert, ClientKeyData: certificate.key}
	content, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := writeFile(t, filepath.Join(folder, "webhooks.kubeconfig"), content)
	configured := `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [`
	for i, name := range []string{"Validating", "Mutating"} {
		if i > 0 {
			configured += ","
		}
		configured += `{"name": "` + name + `AdmissionWebhook", "configuration": {"apiVersion": "apiserver.config.k8s.io/v1",
			"kind": "WebhookAdmissionConfiguration", "kubeConfigFile": "` + path + `"}}`
	}
	cp.RestartWith(t, "--admission-control-config-file="+writeFile(t, filepath.Join(folder, "admission.yaml"), []byte(configured+"]}")))
}

func issueTo(t *testing.T, by *authority, usage x509.ExtKeyUsage) authority {
	t.Helper()
	now := time.Now()
	issued, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "member-1"}, NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, by, now)
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

// TestCallersShowACertificate if the options say of whom.
func TestCallersShowACertificate(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	trusted, err := newAuthority("callers", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority("others", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	right := issueTo(t, &trusted, x509.ExtKeyUsageClientAuth)
	show(t, cp, right)
	p := w.newProgram("Fail", func(o *Options) {
		o.ClientCAs = x509.NewCertPool()
		o.ClientCAs.AppendCertsFromPEM(trusted.cert)
	}).start()
	w.isAsked(cp)
	for what, shown := range map[string]authority{
		"none":             {},
		"one of others":    issueTo(t, &other, x509.ExtKeyUsageClientAuth),
		"one for a server": issueTo(t, &trusted, x509.ExtKeyUsageServerAuth),
		"the right one":    right,
	} {
		if answered := p.answers(shown, p.path("member-1", "/validate--v1-configmap")); answered != (what == "the right one") {
			t.Errorf("who shows %s has an answer: %t", what, answered)
		}
	}
}

// answers reports whether somebody who shows a certificate has an answer. Who shows none has an empty one.
func (p *program) answers(shown authority, path string) bool {
	t := p.world.t
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.hooks.keeper.store.now.Load().bundle())
	cfg := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if len(shown.cert) > 0 {
		pair, err := tls.X509KeyPair(shown.cert, shown.key)
		if err != nil {
			t.Fatal(err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.opts.URL+path, bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	return err == nil && resp.Body.Close() == nil
}

// TestACertificateOfAFolderIsServed, and members trust what is beside it.
func TestACertificateOfAFolderIsServed(t *testing.T) {
	w := newWorld(t, 1)
	cp := w.Members[0]
	folder := t.TempDir()
	var m *material
	p := w.newProgram("Fail", func(o *Options) {
		var err error
		if m, err = newMaterial("elsewhere", o.host(), time.Now()); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{"tls.crt": m.served.cert, "tls.key": m.served.key, "ca.crt": m.ca.cert} {
			writeFile(t, filepath.Join(folder, name), content)
		}
		o.Server.CertDir = folder
	}).start()
	w.isAsked(cp)
	if trusted := w.configuration(cp).Webhooks[0].ClientConfig.CABundle; !bytes.Equal(trusted, m.ca.cert) {
		t.Errorf("members trust %q", trusted)
	}
	if held := w.secret().Data; len(held[dataCA])+len(held[dataCert]) > 0 {
		t.Error("the Secret has certificates that nobody serves")
	}
	if err := os.Remove(filepath.Join(folder, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	if bundle, err := p.opts.bundle(m); len(bundle) > 0 || err != nil {
		t.Errorf("without a ca.crt, members trust %q, %v, and not what their hosts do", bundle, err)
	}
}
