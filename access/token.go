package access

import (
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
)

// Token is a token of an account. Formatting one shows no more than when it expires.
type Token struct {
	value *string // a pointer, so that no way of formatting follows it

	// Made is when it was asked for, and Expires when it is no longer accepted. Both are by the clock of this machine.
	Made, Expires time.Time
	// Issuer and Subject are what the token says of itself: which API server made it, and for which account.
	Issuer, Subject string
}

// Value returns the token itself.
func (t Token) Value() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// String implements [fmt.Stringer].
func (t Token) String() string {
	if t.value == nil {
		return "no token"
	}
	return "a token until " + t.Expires.UTC().Format(time.RFC3339)
}

// is reports whether both are the same token.
func (t Token) is(other Token) bool { return t.Value() == other.Value() }

// maxToken is how large a token may be that is sent, in bytes. Servers take requests with such a header.
const maxToken = 16 << 10

// isSendable reports whether a text can be sent as a token. Otherwise the error of the request would be as of the server.
func isSendable(token string) bool {
	return token != "" && len(token) <= maxToken && !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// granted returns how long it was to live when it was made.
func (t Token) granted() time.Duration { return t.Expires.Sub(t.Made) }

// newToken returns what was granted to a request that was sent then. What the server's clock shows does not count, as it may be
// another than ours.
func newToken(status authenticationv1.TokenRequestStatus, made time.Time) Token {
	claims := jwt.ClaimsOf(status.Token)
	lifetime := status.ExpirationTimestamp.Sub(made)
	if said := claims.Lifetime(); said > 0 {
		lifetime = said
	}
	return Token{value: &status.Token, Made: made, Expires: made.Add(lifetime), Issuer: claims.Issuer, Subject: claims.Subject}
}
