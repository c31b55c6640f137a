package kubeconfig

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
)

// expiry returns when the first of the credentials ends that are in a config. It is zero if none of them says. The answer tells when
// to worry, and opens nothing.
func expiry(config *rest.Config) time.Time {
	certificate, token := expiryOfCertificate(config.CertData), jwt.ClaimsOf(config.BearerToken).ExpiresAt()
	if certificate.IsZero() || !token.IsZero() && token.Before(certificate) {
		return token
	}
	return certificate
}

// expiryOfCertificate returns when the first certificate ends, which is the one that the server gets.
func expiryOfCertificate(text []byte) time.Time {
	block, _ := pem.Decode(text)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotAfter.UTC()
}
