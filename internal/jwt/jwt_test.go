package jwt_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/jwt"
)

func token(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + ".c2lnbmVk"
}

func TestLifetimesAreThoseThatSomebodyCanMean(t *testing.T) {
	for claims, want := range map[string]time.Duration{
		`{"iat": 1000, "exp": 4600}`:                 time.Hour,
		`{"iat": 1000, "exp": 4600, "aud": "one"}`:   time.Hour,
		`{"iat": 4600, "exp": 1000}`:                 0,
		`{"iat": 1000, "exp": 1000}`:                 0,
		`{"exp": 4600}`:                              0,
		`{"iat": 1000}`:                              0,
		`{"iat": -5, "exp": 10}`:                     0,
		`{"iat": 1000, "exp": 1e300}`:                0,
		`{"iat": 1e300, "exp": 1e301}`:               0,
		`{"iat": 1000, "exp": 253402300799}`:         100 * 365 * 24 * time.Hour,
		`{"iat": 1000, "exp": "4600"}`:               0,
		`[]`:                                         0,
		`{"iat": 1000, "exp": 4600`:                  0,
		`{"iat": 1000, "exp": 1e999}`:                0,
		`{"x": "` + strings.Repeat("x", 1<<20) + `"`: 0,
	} {
		if got := jwt.ClaimsOf(token(claims)).Lifetime(); got != want {
			t.Errorf("%.60s lives for %s, want %s", claims, got, want)
		}
	}
}

func TestWhatIsInAnotherFormIsLeftOut(t *testing.T) {
	c := jwt.ClaimsOf(token(`{"iss": 5, "sub": "me", "aud": "one", "exp": 5}`))
	if c.Issuer != "" || c.Subject != "me" || len(c.Audiences) != 0 || !c.ExpiresAt().Equal(time.Unix(5, 0)) || !c.IssuedAt().IsZero() {
		t.Errorf("got %+v", c)
	}
	if c := jwt.ClaimsOf(token(`{"aud": ["a", "b"]}`)); !slices.Equal(c.Audiences, []string{"a", "b"}) {
		t.Errorf("got %+v", c)
	}
	for _, text := range []string{"", "..", "a.!.c", token("{}") + ".x"} {
		if c := jwt.ClaimsOf(text); c.Issuer != "" || c.Expires != 0 {
			t.Errorf("%q says %+v", text, c)
		}
	}
}
