// Package jwt reads what tokens say of themselves. Signatures are not checked: nothing is proved by it.
package jwt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

const (
	// maxToken is the size of the largest token that is looked into, in bytes.
	maxToken = 64 << 10
	// maxTime is the last second of the year 9999. Later ones cannot be written in JSON.
	maxTime = 253402300799
	// maxLifetime is more than any token lives that somebody means, and less than a Duration can be.
	maxLifetime = 100 * 365 * 24 * time.Hour
)

// Claims are what a token says of itself. What it says in another form than API servers do is left out.
type Claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Audiences []string `json:"aud"`
	Issued    float64  `json:"iat"`
	Expires   float64  `json:"exp"`
}

// ClaimsOf reads a token, and returns nothing if it is none that can be read.
func ClaimsOf(token string) (c Claims) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 {
		return Claims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Claims{}
	}
	err = json.Unmarshal(text, &c)
	if _, form := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !form {
		return Claims{}
	}
	return c
}

// Lifetime returns how long the token lives from when it was made, and zero for one that does not say so.
func (c Claims) Lifetime() time.Duration {
	if c.IssuedAt().IsZero() || c.ExpiresAt().IsZero() || c.Expires <= c.Issued {
		return 0
	}
	return time.Duration(min(c.Expires-c.Issued, maxLifetime.Seconds())) * time.Second
}

// IssuedAt returns when the token was made, by the clock of who made it, and zero if it does not say so.
func (c Claims) IssuedAt() time.Time { return at(c.Issued) }

// ExpiresAt returns when the token expires, and zero if it does not say so.
func (c Claims) ExpiresAt() time.Time { return at(c.Expires) }

func at(seconds float64) time.Time {
	if seconds <= 0 || seconds > maxTime {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}
