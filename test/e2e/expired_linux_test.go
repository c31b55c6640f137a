package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// TestACertificateExpiresAndIsRenewed: the member is shown as refusing, and is back with the new one. What changed
// meanwhile is reconciled.
func TestACertificateExpiresAndIsRenewed(t *testing.T) {
	t.Parallel()
	f := mctest.Start(t, mctest.Options{Clusters: 1}) // not of the pool: it is made to trust another authority
	ns := inAll(t, f)
	cp := f.Members[0]
	ca := newAuthority(t)
	ca.trustedBy(t, cp)
	cp.AddUser(t, "short", configMapReader) // for the rights of this name
	m, seen := newSecretsManager(t, f.Local)
	const life = 20 * time.Second // long enough to connect and to list on a busy machine
	secret := m.join("m", ca.user(t, cp, "short", life))
	m.start()
	m.is("m", fleet.Ready)
	seen.mustAgree(t, "m", cp, ns)
	m.becomes(fleet.Unreachable, fleet.ReasonUnauthorized)
	writes := startLoad(t, cp, ns, 20)
	writes.reaches(t, 50)
	m.rejoin(secret, ca.user(t, cp, "short", time.Hour))
	m.becomes(fleet.Ready)
	writes.reaches(t, 50)
	writes.end(t)
	seen.mustAgree(t, "m", cp, ns)
	if status := m.status("m"); status.Reason != "" {
		t.Errorf("the repaired member complains: %+v", status)
	}
}

// authority issues certificates. That of a control plane does so only for a week.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "short lives"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, cert: cert}
}

// user returns the config of a user whose certificate is good for so long from now on.
func (a *authority) user(t *testing.T, cp *mctest.ControlPlane, name string, life time.Duration) *rest.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(cp.Config())
	cfg.CertData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	cfg.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	return cfg
}

// trustedBy makes a control plane accept the authority's certificates, beside those of its own. Its API server reads the
// file again when that changes.
func (a *authority) trustedBy(t *testing.T, cp *mctest.ControlPlane) {
	t.Helper()
	path := clientCAFile(t, cp)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	if closeErr := file.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	cl, err := client.New(a.user(t, cp, "anybody", time.Hour), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventuallyWithin(t, 2*time.Minute, "the API server trusts the authority", func() bool {
		return cl.Create(t.Context(), &authenticationv1.SelfSubjectReview{}) == nil
	})
}

// clientCAFile finds the file of trusted authorities on the command line of an API server.
func clientCAFile(t *testing.T, cp *mctest.ControlPlane) string {
	t.Helper()
	server, err := url.Parse(cp.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err != nil || !bytes.Contains(content, []byte("--secure-port="+server.Port()+"\x00")) {
			continue
		}
		for arg := range strings.SplitSeq(string(content), "\x00") {
			if path, ok := strings.CutPrefix(arg, "--client-ca-file="); ok {
				return path
			}
		}
	}
	t.Skip("the API server's command line does not name the file of the authorities that it trusts")
	return ""
}
