package mcwebhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	authorityLives   = 365 * 24 * time.Hour
	certificateLives = 90 * 24 * time.Hour
	// clockSkew is by how much the clocks of members may be behind.
	clockSkew = 10 * time.Minute
)

// phase is how far a rotation is.
type phase string

const (
	// steady: there is one key and one authority.
	steady phase = ""
	// installing: members are given the new key, and trust both authorities. The certificate is still of the old one.
	installing phase = "installing"
	// switched: the certificate is of the new authority. The old key and the old authority still count.
	switched phase = "switched"
)

// authority is a certificate authority, in PEM.
type authority struct{ cert, key []byte }

// material is what the Secret holds. It is not changed once others have it.
type material struct {
	id               string // of the Secret, whatever it holds; empty in one that was made by an earlier version
	key, previousKey []byte
	// ca and previousCA are empty where the certificates are not the program's own. previousCA has a key while it still signs.
	ca, previousCA authority
	// served is the certificate and the key with which the webhooks are served.
	served authority
	phase  phase
	since  time.Time // when the phase began

	certificate *tls.Certificate // of served
}

// The keys of the Secret's data.
const (
	dataID            = "id"
	dataKey           = "key"
	dataPreviousKey   = "previous-key"
	dataCA            = "ca.crt"
	dataCAKey         = "ca.key"
	dataPreviousCA    = "previous-ca.crt"
	dataPreviousCAKey = "previous-ca.key"
	dataCert          = "tls.crt"
	dataCertKey       = "tls.key"
	dataPhase         = "phase"
	dataSince         = "since"
)

// data returns what the Secret holds.
func (m *material) data() map[string][]byte {
	return map[string][]byte{
		dataID: []byte(m.id), dataKey: m.key, dataPreviousKey: m.previousKey,
		dataCA: m.ca.cert, dataCAKey: m.ca.key, dataPreviousCA: m.previousCA.cert, dataPreviousCAKey: m.previousCA.key,
		dataCert: m.served.cert, dataCertKey: m.served.key,
		dataPhase: []byte(m.phase), dataSince: []byte(m.since.UTC().Format(time.RFC3339)),
	}
}

// parse returns what a Secret holds. The error holds nothing of it.
func parse(data map[string][]byte) (*material, error) {
	m := &material{
		id: string(data[dataID]), key: data[dataKey], previousKey: data[dataPreviousKey],
		ca: authority{data[dataCA], data[dataCAKey]}, previousCA: authority{data[dataPreviousCA], data[dataPreviousCAKey]},
		served: authority{data[dataCert], data[dataCertKey]}, phase: phase(data[dataPhase]),
	}
	if len(m.key) < keySize {
		return nil, fmt.Errorf("it has no %s of at least %d bytes", dataKey, keySize)
	}
	var err error
	if m.since, err = time.Parse(time.RFC3339, string(data[dataSince])); err != nil {
		return nil, fmt.Errorf("its %s is no time", dataSince)
	}
	if len(m.served.cert) == 0 {
		return m, nil
	}
	pair, err := tls.X509KeyPair(m.served.cert, m.served.key)
	if err != nil {
		return nil, fmt.Errorf("its %s and %s are no certificate with its key", dataCert, dataCertKey)
	}
	m.certificate = &pair
	return m, nil
}

// keys returns the keys that count.
func (m *material) keys() [][]byte {
	if len(m.previousKey) == 0 {
		return [][]byte{m.key}
	}
	return [][]byte{m.key, m.previousKey}
}

// bundle returns the authorities that members trust.
func (m *material) bundle() []byte { return slices.Concat(m.ca.cert, m.previousCA.cert) }

const keySize = 32

func newKey() []byte {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // it never fails
	return key
}

// newMaterial returns new keys, and new certificates for a host if that is not empty.
func newMaterial(name, host string, now time.Time) (m *material, err error) {
	m = &material{id: string(uuid.NewUUID()), key: newKey(), since: now}
	if host == "" {
		return m, nil
	}
	if m.ca, err = newAuthority(name, now); err != nil {
		return nil, err
	}
	return m, m.serve(m.ca, []string{host}, now)
}

// identify gives the Secret of an earlier version an ID.
func (m *material) identify() *material {
	next := *m
	next.id = string(uuid.NewUUID())
	return &next
}

// rotate begins to take new keys.
func (m *material) rotate(name, host string, now time.Time) (next *material, err error) {
	next = &material{id: m.id, key: newKey(), previousKey: m.key, served: m.served, phase: installing, since: now}
	if host == "" {
		return next, nil
	}
	next.previousCA = m.ca
	next.ca, err = newAuthority(name, now)
	return next, err
}

// switchOver serves with the new authority, for a host and those for which was served before.
func (m *material) switchOver(host string, now time.Time) (*material, error) {
	next := *m
	next.phase, next.since, next.previousCA.key = switched, now, nil
	if host == "" {
		return &next, nil
	}
	return &next, next.serve(next.ca, m.hostsWith(host), now)
}

// finish forgets the old ones.
func (m *material) finish(now time.Time) *material {
	next := *m
	next.phase, next.since, next.previousKey, next.previousCA = steady, now, nil, authority{}
	return &next
}

// renew serves with a new certificate of the same authority. If the one before is not old, another replica has it, which has another host:
// the new one is for both. Otherwise the two would renew it in turns.
func (m *material) renew(host string, now time.Time) (*material, error) {
	next, by, hosts := *m, m.ca, []string{host}
	if m.phase == installing {
		by = m.previousCA
	}
	if leaf, err := first(m.served.cert); err == nil && !isOld(leaf, now) {
		hosts = m.hostsWith(host)
	}
	return &next, next.serve(by, hosts, now)
}

// hostsWith returns a host and those of the certificate that is served.
func (m *material) hostsWith(host string) []string {
	hosts := []string{host}
	leaf, err := first(m.served.cert)
	if err != nil {
		return hosts
	}
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	hosts = append(hosts, leaf.DNSNames...)
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// mustRenew reports whether the certificate is not for the host, or has lived two thirds of its life.
func (m *material) mustRenew(host string, now time.Time) bool {
	leaf, err := first(m.served.cert)
	return err != nil || leaf.VerifyHostname(host) != nil || isOld(leaf, now)
}

// mustRotate reports whether the authority has lived two thirds of its life.
func (m *material) mustRotate(now time.Time) bool {
	ca, err := first(m.ca.cert)
	return err != nil || isOld(ca, now)
}

func isOld(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3))
}

// first returns the certificate in PEM.
func first(text []byte) (*x509.Certificate, error) {
	all, err := cert.ParseCertsPEM(text)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func newAuthority(name string, now time.Time) (authority, error) {
	return issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "webhooks of " + name}, NotAfter: now.Add(authorityLives),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil, now)
}

// serve takes a new certificate of an authority for hosts.
func (m *material) serve(by authority, hosts []string, now time.Time) (err error) {
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, NotAfter: now.Add(certificateLives),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	m.served, err = issue(leaf, &by, now)
	return err
}

// issue signs a certificate, by itself if there is no other.
func issue(template *x509.Certificate, by *authority, now time.Time) (issued authority, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("making a key: %w", err)
	}
	template.NotBefore = now.Add(-clockSkew)
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return authority{}, fmt.Errorf("making a serial number: %w", err)
	}
	parent, signer := template, key
	if by != nil {
		if parent, signer, err = by.signer(); err != nil {
			return authority{}, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return authority{}, fmt.Errorf("signing a certificate: %w", err)
	}
	issued.cert = pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
	issued.key, err = keyutil.MarshalPrivateKeyToPEM(key)
	return issued, err
}

func (a *authority) signer() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	parent, err := first(a.cert)
	if err != nil {
		return nil, nil, errors.New("the certificate of the authority cannot be read")
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(a.key)
	if err != nil {
		return nil, nil, errors.New("the key of the authority cannot be read")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errors.New("the key of the authority is none of ECDSA")
	}
	return parent, key, nil
}
