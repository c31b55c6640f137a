package kubeconfig

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// expiry returns when the first of the credentials ends that are in a config. It is zero if none of them says.
func expiry(config *rest.Config) time.Time {
	certificate, token := expiryOfCertificate(config.CertData), expiryOfToken(config.BearerToken)
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

const (
	// maxToken is the size of the largest token that is looked into, in bytes.
	maxToken = 64 << 10
	// maxExpiry is the last second of the year 9999. Later ones cannot be written in JSON.
	maxExpiry = 253402300799
)

// expiryOfToken returns what a JWT says. The signature is not checked here: the answer tells when to worry, and opens nothing.
func expiryOfToken(token string) time.Time {
	if len(token) > maxToken {
		return time.Time{}
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(text, &claims) != nil || claims.Expires <= 0 || claims.Expires > maxExpiry {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0).UTC()
}
