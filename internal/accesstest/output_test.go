package accesstest

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestAnOutputThatShowsASecretSaysWhere(t *testing.T) {
	key := func(kind string) string { return "-----BEGIN " + kind + "-----\nMIIB" }
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	const token = "eyJhbGciOiJSUzI1NiJ9.e30.MIIB"
	for what, secret := range map[string]string{
		"a token": token, "one of a Secret": encoded(token),
		"a key": key("PRIVATE KEY"), "one for RSA": key("RSA PRIVATE KEY"), "one for ECDSA": key("EC PRIVATE KEY"),
		"a key of a Secret": encoded(key("PRIVATE KEY")), "one for RSA of a Secret": encoded(key("RSA PRIVATE KEY")),
		"one for ECDSA of a Secret": encoded(key("EC PRIVATE KEY")),
	} {
		var o Output
		o.Note("the server answers no: " + key("CERTIFICATE") + encoded(key("CERTIFICATE")) + encoded(key("PUBLIC KEY")) + strings.Repeat(" ", around))
		if found := o.Secret(); found != "" {
			t.Errorf("it finds %q", found)
		}
		o.Note(map[string]string{"sent": "Bearer " + secret})
		if found := o.Secret(); !strings.Contains(found, "Bearer") || strings.Contains(found, "MIIB") {
			t.Errorf("of %s it finds %q, want what is before it", what, found)
		}
	}
}
