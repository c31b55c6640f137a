package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/access"
	"github.com/fleet-runtime/fleet-runtime/access/v1alpha1"
	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/accesstest"
	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
)

// certify returns a CA, and a certificate by it for a name.
func certify(t *testing.T, name string) (ca []byte, leaf tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	accesstest.Must(t, err)
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	accesstest.Must(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, of, root, &key.PublicKey, key)
	accesstest.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}), tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: key}
}

// given are the tokens that a machine was sent.
type given struct {
	mu     sync.Mutex
	tokens []string
}

// ServeHTTP implements [http.Handler].
func (g *given) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens = append(g.tokens, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
	w.WriteHeader(http.StatusNotFound)
}

func (g *given) all() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.tokens)
}

// leadTo returns the URL of a proxy that leads each connection to one machine, wherever it should go.
func leadTo(t *testing.T, address string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		out, err := (&net.Dialer{}).DialContext(req.Context(), "tcp", address)
		if err != nil || req.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = out.Close() }()
		w.WriteHeader(http.StatusOK)
		in, read, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = in.Close() }()
		back := make(chan struct{})
		go func() { defer close(back); _, _ = io.Copy(in, out); _ = in.Close() }()
		_, _ = io.Copy(out, read) // it may have the first bytes already
		_ = out.Close()
		<-back
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// Somebody edits the name of the certificate and the proxy alone, and has a machine with another certificate of the CA.
func TestAnEditedNameAndProxyLeadNoTokenToAMachineOfTheSameCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	const server, name = "https://real.example.com:6443", "printer.example.com"
	ca, leaf := certify(t, name)
	given := &given{}
	thief := httptest.NewUnstartedServer(given)
	thief.TLS = &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12}
	thief.StartTLS()
	t.Cleanup(thief.Close)

	accesstest.Create(t, w.hub, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: accesstest.Operator}})
	accesstest.Create(t, w.hub, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "east-minter"}, Data: map[string][]byte{
		v1alpha1.MinterToken: []byte("x"), v1alpha1.MinterServer: []byte(server), v1alpha1.MinterCA: ca,
		v1alpha1.MinterNamespace: []byte(accesstest.Namespace), v1alpha1.MinterServiceAccount: []byte(accesstest.Minter),
	}})
	edited := v1alpha1.ClusterAccessSpec{Server: server, CABundle: ca, TLSServerName: name, ProxyURL: leadTo(t, thief.Listener.Addr().String())}
	minted := &v1alpha1.ClusterAccess{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "east"}, Spec: edited}
	minted.Spec.Minter = &v1alpha1.Minter{SecretName: "east-minter", ServiceAccountNamespace: accesstest.Namespace, ServiceAccountName: accesstest.Worker}
	if _, err := w.client(t).Token(t.Context(), minted); fleet.ReasonOf(err) != v1alpha1.ReasonMismatch {
		t.Errorf("with a minter, the error is %v", err)
	}
	if sent := given.all(); len(sent) > 0 {
		t.Errorf("the machine was sent the minter's token, %d times", len(sent))
	}

	federated := &v1alpha1.ClusterAccess{ObjectMeta: minted.ObjectMeta, Spec: edited}
	federated.Spec.Federated = &v1alpha1.Federated{ServiceAccountName: accesstest.Operator}
	token, err := w.client(t).Token(t.Context(), federated)
	accesstest.Must(t, err)
	_, err = access.Check(t.Context(), federated, token)
	sent := given.all()
	if len(sent) == 0 {
		t.Fatalf("the proxy does not lead to the machine: %v", err)
	}
	for _, token := range sent {
		if of := jwt.ClaimsOf(token).Audiences; len(of) != 1 || slices.Contains(of, access.Audience(server, ca, "")) {
			t.Errorf("the machine was sent a token for %q", of)
		}
	}
}
