// Package pki contains a certificate authority for the servers of some hosts and for their clients. It is as small as one can be that
// is safe to run: use cert-manager where more is asked of it.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Parts of a certificate's life. An authority has its successor before it issues by it, so that all trust the successor by then.
const (
	successorAfter = 0.5
	renewAfter     = 2.0 / 3
)

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// Pair is a certificate and its key, both as PEM.
type Pair struct{ Certificate, Key []byte }

// Authority issues certificates. While one authority succeeds another it is both. It is a value: methods return what has changed.
type Authority struct{ all []issuer }

type issuer struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// ReadAuthority reads what [Authority.PEM] has returned. Nothing at all is an authority without certificates, which [Authority.Renewed]
// gives its first one.
func ReadAuthority(p Pair) (Authority, error) {
	certificates, keys := blocks(p.Certificate, certificateBlock), blocks(p.Key, keyBlock)
	if len(certificates) != len(keys) {
		return Authority{}, fmt.Errorf("the authority has %d certificates and %d keys", len(certificates), len(keys))
	}
	if len(certificates) == 0 && len(p.Certificate)+len(p.Key) > 0 {
		return Authority{}, errors.New("the authority's certificate and key are not PEM")
	}
	a := Authority{}
	for i, der := range certificates {
		read, err := readIssuer(der, keys[i])
		if err != nil {
			return Authority{}, fmt.Errorf("reading certificate %d of the authority: %w", i, err)
		}
		a.all = append(a.all, read)
	}
	return a, nil
}

func readIssuer(certificate, key []byte) (issuer, error) {
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		return issuer{}, err
	}
	private, err := x509.ParsePKCS8PrivateKey(key)
	if err != nil {
		return issuer{}, errors.New("its key is none of PKCS #8") // the error of x509 could quote it
	}
	signer, ok := private.(crypto.Signer)
	if !ok || !parsed.IsCA || !belongs(signer, parsed) {
		return issuer{}, errors.New("it is not one of an authority with that key")
	}
	return issuer{parsed, signer}, nil
}

// belongs reports whether a key is that of a certificate.
func belongs(key crypto.Signer, certificate *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(certificate.PublicKey)
}

// PEM returns what is to be kept of an authority, the keys with it.
func (a Authority) PEM() (Pair, error) {
	p := Pair{Certificate: a.Trusted()}
	for _, i := range a.all {
		key, err := keyPEM(i.key)
		if err != nil {
			return Pair{}, err
		}
		p.Key = append(p.Key, key...)
	}
	return p, nil
}

// Trusted returns the certificates of the authority as PEM, for those that have to trust what it issues.
func (a Authority) Trusted() []byte {
	var all bytes.Buffer
	for _, i := range a.all {
		_ = pem.Encode(&all, &pem.Block{Type: certificateBlock, Bytes: i.certificate.Raw}) // a buffer takes all
	}
	return all.Bytes()
}

// Renewed returns the authority as it should be now: with a successor after half of its life, and without what has expired.
func (a Authority) Renewed(now time.Time, validity time.Duration) (Authority, error) {
	living := slices.DeleteFunc(slices.Clone(a.all), func(i issuer) bool { return !now.Before(i.certificate.NotAfter) })
	if n := len(living); n > 0 && now.Before(after(successorAfter, living[n-1].certificate)) {
		return Authority{living}, nil
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "ingress-tls"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, key, err := sign(template, issuer{}, now, validity)
	if err != nil {
		return Authority{}, fmt.Errorf("making an authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return Authority{}, err
	}
	return Authority{append(living, issuer{certificate, key})}, nil
}

// issuer returns what issues now: the oldest, until it would have to be renewed itself.
func (a Authority) issuer(now time.Time) (issuer, error) {
	if len(a.all) == 0 {
		return issuer{}, errors.New("the authority has no certificate")
	}
	for _, i := range a.all {
		if now.Before(after(renewAfter, i.certificate)) {
			return i, nil
		}
	}
	return a.all[len(a.all)-1], nil
}

// Server issues a certificate for the server of some hosts.
func (a Authority) Server(hosts []string, now time.Time, validity time.Duration) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, errors.New("a server's certificate takes a host")
	}
	return a.issue(&x509.Certificate{DNSNames: hosts, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, now, validity)
}

// Client issues a certificate for a client of that name.
func (a Authority) Client(name string, now time.Time, validity time.Duration) (Pair, error) {
	return a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, now, validity)
}

func (a Authority) issue(template *x509.Certificate, now time.Time, validity time.Duration) (Pair, error) {
	by, err := a.issuer(now)
	if err != nil {
		return Pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, key, err := sign(template, by, now, validity)
	if err != nil {
		return Pair{}, fmt.Errorf("issuing a certificate: %w", err)
	}
	encoded, err := keyPEM(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}), encoded}, nil
}

// sign completes a certificate and signs it, by itself where there is no issuer. It is valid from a little before now, for machines whose
// clocks go behind, and no longer than its issuer.
func sign(template *x509.Certificate, by issuer, now time.Time, validity time.Duration) ([]byte, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-min(validity/10, 5*time.Minute)), now.Add(validity)
	parent, signer := template, crypto.Signer(key)
	if by.certificate != nil {
		parent, signer = by.certificate, by.key
		if template.NotAfter.After(parent.NotAfter) {
			template.NotAfter = parent.NotAfter
		}
	}
	// Without a serial number, CreateCertificate chooses one at random, of 20 bytes.
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	return der, key, err
}

// ServerRenewal returns when a server's certificate is to be issued anew. That is the zero time if it is not one for these hosts by this
// authority.
func (a Authority) ServerRenewal(p Pair, hosts []string) time.Time {
	return a.renewal(p, func(c *x509.Certificate) bool {
		have, want := slices.Sorted(slices.Values(c.DNSNames)), slices.Sorted(slices.Values(hosts))
		return slices.Equal(have, want) && slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	})
}

// ClientRenewal is to a client's certificate what [Authority.ServerRenewal] is to that of a server.
func (a Authority) ClientRenewal(p Pair, name string) time.Time {
	return a.renewal(p, func(c *x509.Certificate) bool {
		return c.Subject.CommonName == name && slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	})
}

func (a Authority) renewal(p Pair, fits func(*x509.Certificate) bool) time.Time {
	certificates, keys := blocks(p.Certificate, certificateBlock), blocks(p.Key, keyBlock)
	if len(certificates) != 1 || len(keys) != 1 {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(certificates[0])
	if err != nil || !fits(certificate) {
		return time.Time{}
	}
	key, err := x509.ParsePKCS8PrivateKey(keys[0])
	if signer, ok := key.(crypto.Signer); err != nil || !ok || !belongs(signer, certificate) {
		return time.Time{}
	}
	if !slices.ContainsFunc(a.all, func(i issuer) bool { return certificate.CheckSignatureFrom(i.certificate) == nil }) {
		return time.Time{}
	}
	return after(renewAfter, certificate)
}

// Successor returns when the authority is to be asked again whether it is [Authority.Renewed].
func (a Authority) Successor() time.Time {
	if len(a.all) == 0 {
		return time.Time{}
	}
	return after(successorAfter, a.all[len(a.all)-1].certificate)
}

// after returns when a part of a certificate's life is over.
func after(part float64, c *x509.Certificate) time.Time {
	return c.NotBefore.Add(time.Duration(part * float64(c.NotAfter.Sub(c.NotBefore))))
}

func keyPEM(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// blocks returns what is in a PEM text, of one type.
func blocks(text []byte, of string) [][]byte {
	var all [][]byte
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return all
		}
		if block.Type == of {
			all = append(all, block.Bytes)
		}
		text = rest
	}
}
