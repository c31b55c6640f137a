package kubeconfig_test

import (
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// jwt returns a token with these claims. Nobody has signed it.
func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + ".c2lnbmVk"
}

func TestAMemberExpiresWithTheFirstOfItsCredentials(t *testing.T) {
	end := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	certificate, key := newCertificateUntil(t, end)
	ends := func(at time.Time) string { return jwt(fmt.Sprintf(`{"exp": %d, "sub": "me"}`, at.Unix())) }
	for name, tc := range map[string]struct {
		user clientcmdapi.AuthInfo
		want time.Time
	}{
		"no credentials":          {clientcmdapi.AuthInfo{}, time.Time{}},
		"a token that says it":    {clientcmdapi.AuthInfo{Token: ends(end)}, end},
		"a token with a fraction": {clientcmdapi.AuthInfo{Token: jwt(`{"exp": 1.5e9}`)}, time.Unix(1_500_000_000, 0).UTC()},
		"a certificate":           {clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}, end},
		"a token that ends later": {
			clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key, Token: ends(end.Add(time.Hour))}, end,
		},
		"a token that ends before": {
			clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key, Token: ends(end.Add(-time.Hour))}, end.Add(-time.Hour),
		},
		"a token that says nothing beside a certificate": {
			clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key, Token: secret}, end,
		},
		"a file":                   {clientcmdapi.AuthInfo{TokenFile: "/dev/null"}, time.Time{}},
		"a password":               {clientcmdapi.AuthInfo{Username: "me", Password: ends(end)}, time.Time{}},
		"another kind of token":    {clientcmdapi.AuthInfo{Token: secret}, time.Time{}},
		"points alone":             {clientcmdapi.AuthInfo{Token: ".."}, time.Time{}},
		"more parts":               {clientcmdapi.AuthInfo{Token: ends(end) + ".x"}, time.Time{}},
		"no base64":                {clientcmdapi.AuthInfo{Token: "a.!.c"}, time.Time{}},
		"no JSON":                  {clientcmdapi.AuthInfo{Token: jwt("{")}, time.Time{}},
		"a list":                   {clientcmdapi.AuthInfo{Token: jwt("[]")}, time.Time{}},
		"no end":                   {clientcmdapi.AuthInfo{Token: jwt("{}")}, time.Time{}},
		"an end that is a text":    {clientcmdapi.AuthInfo{Token: jwt(`{"exp": "tomorrow"}`)}, time.Time{}},
		"an end before all time":   {clientcmdapi.AuthInfo{Token: jwt(`{"exp": -1}`)}, time.Time{}},
		"an end after all years":   {clientcmdapi.AuthInfo{Token: jwt(fmt.Sprintf(`{"exp": %g}`, math.MaxFloat64))}, time.Time{}},
		"an end that is too great": {clientcmdapi.AuthInfo{Token: jwt(`{"exp": 1e999}`)}, time.Time{}},
		"a token of a megabyte":    {clientcmdapi.AuthInfo{Token: jwt(`{"exp": 1, "x": "` + strings.Repeat("x", 1<<20) + `"}`)}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig()
			*config.AuthInfos["admin"] = tc.user
			m := kubeconfig.Member("m", write(t, config), "", kubeconfig.Allow{Files: true})
			if m.Err != nil || !m.Expires.Equal(tc.want) {
				t.Errorf("got %v, %v, want %v", m.Expires, m.Err, tc.want)
			}
			if _, err := m.Expires.MarshalJSON(); err != nil {
				t.Errorf("the state cannot be shown: %v", err)
			}
		})
	}
	m := readArgoCD(t, argoCDConfig(toJSON(t, object{"bearerToken": ends(end)})), kubeconfig.Allow{})
	if !m.Expires.Equal(end) {
		t.Errorf("a Secret of Argo CD: got %v, %v, want %v", m.Expires, m.Err, end)
	}
}
