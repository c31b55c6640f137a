package membership

import "strconv"

// Authentication is what a member's API server is told of the hub.
type Authentication struct {
	// Issuer is that of the hub's tokens, and DiscoveryURL where it is asked for its keys, if that is not below it.
	Issuer, DiscoveryURL string
	// CA are the certificates by which the issuer is known, as PEM.
	CA []byte
	// Audience is that of the tokens for this member, and Subject the account of the hub that they are of.
	Audience, Subject string
	// Legacy is for clusters before Kubernetes 1.34.
	Legacy bool
}

// Configuration returns the AuthenticationConfiguration. Users have a prefix, so that none is taken for an account of the member, and
// are in no groups but system:authenticated:
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration
func (a Authentication) Configuration() map[string]any {
	issuer := map[string]any{"url": a.Issuer, "audiences": []string{a.Audience}, "certificateAuthority": string(a.CA)}
	if a.DiscoveryURL != "" {
		issuer["discoveryURL"] = a.DiscoveryURL
	}
	version := "apiserver.config.k8s.io/v1"
	if a.Legacy {
		version = "apiserver.config.k8s.io/v1beta1"
	}
	return map[string]any{
		"apiVersion": version,
		"kind":       "AuthenticationConfiguration",
		"jwt": []any{map[string]any{
			"issuer":        issuer,
			"claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": UserPrefix}},
			"claimValidationRules": []any{map[string]any{
				"expression": "claims.sub == " + strconv.Quote(a.Subject),
				"message":    "only one account of the hub comes to this cluster",
			}},
		}},
	}
}
