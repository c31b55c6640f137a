package kubeconfig_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// secret stands in all the places where credentials can be, and must not show up in an error.
const secret = "S3CR3T-VALUE"

// newKubeconfig returns a good kubeconfig, with a second context beside the current one.
func newKubeconfig() *clientcmdapi.Config {
	return &clientcmdapi.Config{
		CurrentContext: "main",
		Contexts: map[string]*clientcmdapi.Context{
			"main":  {Cluster: "east", AuthInfo: "admin"},
			"other": {Cluster: "west", AuthInfo: "guest"},
		},
		Clusters: map[string]*clientcmdapi.Cluster{
			"east": {Server: "https://east.example.com:6443"},
			"west": {Server: "https://west.example.com"},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"admin": {Token: secret},
			"guest": {Token: secret},
		},
	}
}

func write(tb testing.TB, config *clientcmdapi.Config) []byte {
	tb.Helper()
	text, err := clientcmd.Write(*config)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// programs are those that tests allow.
var programs = []kubeconfig.Program{
	{Command: "/bin/" + secret, Args: []string{"*"}, Env: map[string]string{"X": "*"}},
	{Command: "/bin/" + secret, Args: []string{"*"}},
	{Command: "login", Args: []string{"-x", "*"}, Env: map[string]string{"A": "*", "B": "*"}, ClusterInfo: true},
	{Command: "login"},
	{Command: secret},
	{Args: []string{"*"}},
	{Command: "x", Env: map[string]string{"A": "*", "B": "*"}},
	{Command: "argocd-k8s-auth", Args: []string{"aws", "--cluster-name", "*"}},
	{Command: "argocd-k8s-auth", Args: []string{"aws", "--cluster-name", "*", "--profile", "*"}},
	{Command: "argocd-k8s-auth", Args: []string{"aws", "--cluster-name", "*", "--role-arn", "arn:aws:iam::1:role/*", "--profile", "dev"}},
}

// refusals are what is refused unless it is allowed.
var refusals = map[string]struct {
	change func(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo)
	allow  kubeconfig.Allow
	want   []string // in the message
}{
	"exec": {
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
				Command: "/bin/" + secret, Args: []string{secret}, APIVersion: "client.authentication.k8s.io/v1",
				Env: []clientcmdapi.ExecEnvVar{{Name: "X", Value: secret}}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}}
		},
		kubeconfig.Allow{Exec: programs},
		[]string{`user "admin"`, "exec", "Allow.Exec"},
	},
	"auth-provider": {
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{
				Name: "oidc", Config: map[string]string{"client-secret": secret},
			}}
		},
		kubeconfig.Allow{AuthProvider: true},
		[]string{`user "admin"`, "auth-provider", "Allow.AuthProvider"},
	},
	"a file of an auth-provider": {
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{
				Name: "oidc", Config: map[string]string{"idp-certificate-authority": "/dev/null"},
			}}
		},
		kubeconfig.Allow{AuthProvider: true, Files: true},
		[]string{`user "admin"`, "idp-certificate-authority", "Allow.Files"},
	},
	"tokenFile": {
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			*u = clientcmdapi.AuthInfo{TokenFile: "/dev/null"}
		},
		kubeconfig.Allow{Files: true},
		[]string{`user "admin"`, "tokenFile", "Allow.Files"},
	},
	"tokenFile beside a token": {
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) { u.TokenFile = "/dev/null" },
		kubeconfig.Allow{Files: true},
		[]string{`user "admin"`, "tokenFile", "Allow.Files"},
	},
	"client-certificate and client-key": {
		func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificate, u.ClientKey = "/dev/null", "/dev/null"
		},
		kubeconfig.Allow{Files: true},
		[]string{`user "admin"`, "client-certificate", "client-key", "Allow.Files"},
	},
	"certificate-authority": {
		func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthority = "/dev/null" },
		kubeconfig.Allow{Files: true},
		[]string{`cluster "east"`, "certificate-authority", "Allow.Files"},
	},
	"insecure-skip-tls-verify": {
		func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.InsecureSkipTLSVerify = true },
		kubeconfig.Allow{InsecureTLS: true},
		[]string{`cluster "east"`, "insecure-skip-tls-verify", "Allow.InsecureTLS"},
	},
	"http": {
		func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "http://east.example.com" },
		kubeconfig.Allow{PlainHTTP: true},
		[]string{`cluster "east"`, "http://", "Allow.PlainHTTP"},
	},
	"several at once": {
		func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, u.TokenFile = true, "/dev/null"
		},
		kubeconfig.Allow{InsecureTLS: true, Files: true},
		[]string{`cluster "east"`, "insecure-skip-tls-verify", `user "admin"`, "tokenFile"},
	},
}

func TestWhatReachesBeyondTheKubeconfigIsRefusedUnlessAllowed(t *testing.T) {
	everything := kubeconfig.Allow{Exec: programs, AuthProvider: true, Files: true, InsecureTLS: true, PlainHTTP: true}
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig()
			tc.change(config.Clusters["east"], config.AuthInfos["admin"])
			text := write(t, config)

			for _, allow := range []kubeconfig.Allow{{}, without(everything, tc.allow)} {
				m := kubeconfig.Member("m", text, "", allow)
				wantError(t, m.Err, kubeconfig.ReasonRefused, tc.want...)
				if m.Config != nil || m.Revision != "" {
					t.Error("there is a config beside the error")
				}
			}
			if m := kubeconfig.Member("m", text, "", tc.allow); m.Err != nil {
				t.Errorf("refused although %+v is allowed: %v", tc.allow, m.Err)
			}
			if m := kubeconfig.Member("m", text, "other", kubeconfig.Allow{}); m.Err != nil {
				t.Errorf("refused because of entries that the context does not use: %v", m.Err)
			}
		})
	}
}

func without(all, some kubeconfig.Allow) kubeconfig.Allow {
	if some.Exec != nil {
		all.Exec = nil
	}
	return kubeconfig.Allow{
		Exec: all.Exec, AuthProvider: all.AuthProvider && !some.AuthProvider, Files: all.Files && !some.Files,
		InsecureTLS: all.InsecureTLS && !some.InsecureTLS, PlainHTTP: all.PlainHTTP && !some.PlainHTTP,
	}
}

// wantError checks that err is an [kubeconfig.Error] that says these things, and nothing that it must not say.
func wantError(tb testing.TB, err error, reason string, parts ...string) {
	tb.Helper()
	var typed *kubeconfig.Error
	if !errors.As(err, &typed) {
		tb.Fatalf("got error %v, want a kubeconfig.Error", err)
	}
	if typed.Reason() != reason {
		tb.Errorf("reason %s, want %s: %v", typed.Reason(), reason, err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			tb.Errorf("the error does not tell %q: %v", part, err)
		}
	}
	if strings.Contains(err.Error(), secret) {
		tb.Errorf("the error tells a secret: %v", err)
	}
	wantReadable(tb, err)
}

func wantReadable(tb testing.TB, err error) {
	tb.Helper()
	if len(err.Error()) > 1000 {
		tb.Errorf("the error has %d bytes", len(err.Error()))
	}
	if strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
		tb.Errorf("the error has characters that do not print: %q", err.Error())
	}
}

func TestAKubeconfigThatCannotBeUsedSaysWhy(t *testing.T) {
	certificate, _ := newCertificate(t)
	_, otherKey := newCertificate(t)
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 300)
	changed := func(change func(c *clientcmdapi.Config)) []byte {
		config := newKubeconfig()
		change(config)
		return write(t, config)
	}
	cluster := func(change func(c *clientcmdapi.Cluster)) []byte {
		return changed(func(c *clientcmdapi.Config) { change(c.Clusters["east"]) })
	}
	user := func(change func(u *clientcmdapi.AuthInfo)) []byte {
		return changed(func(c *clientcmdapi.Config) { change(c.AuthInfos["admin"]) })
	}
	for name, tc := range map[string]struct {
		text    []byte
		context string
		allow   kubeconfig.Allow
		want    []string
	}{
		"empty":                       {text: nil, want: []string{"empty"}},
		"blank":                       {text: []byte(" \n\n"), want: []string{"empty"}},
		"only a token":                {text: []byte(secret), want: []string{"apiVersion v1, kind Config"}},
		"broken YAML":                 {text: []byte("kind: Config\nusers:\n\t- " + secret + ": ["), want: []string{"line"}},
		"broken JSON":                 {text: []byte(`{"users": [{"name": "` + secret), want: []string{"apiVersion v1, kind Config"}},
		"another kind":                {text: []byte("apiVersion: v1\nkind: " + secret), want: []string{"kind Config"}},
		"another version":             {text: []byte("apiVersion: " + secret + "\nkind: Config"), want: []string{"apiVersion v1"}},
		"a string for a list":         {text: []byte("kind: Config\nusers: " + secret), want: []string{"kind Config"}},
		"an object for a string":      {text: []byte("users: [{name: a, user: {token: {a: " + secret + "}}}]"), want: []string{"kind Config"}},
		"a number for a string":       {text: []byte("users: [{name: a, user: {token: 4711}}]"), want: []string{"kind Config"}},
		"broken base64":               {text: []byte("clusters: [{name: a, cluster: {certificate-authority-data: '" + secret + "!'}}]"), want: []string{"kind Config"}},
		"two users of one name":       {text: []byte("users: [{name: a, user: {token: " + secret + "}}, {name: a, user: {token: b}}]"), want: []string{"same name"}},
		"no context":                  {text: changed(func(c *clientcmdapi.Config) { c.CurrentContext = "" }), want: []string{"current-context"}},
		"an unknown current context":  {text: changed(func(c *clientcmdapi.Config) { c.CurrentContext = "gone" }), want: []string{`context "gone"`}},
		"an unknown named context":    {text: write(t, newKubeconfig()), context: "gone", want: []string{`context "gone"`}},
		"a long unknown context":      {text: write(t, newKubeconfig()), context: long, want: []string{`context "xxx`}},
		"an unprintable context":      {text: write(t, newKubeconfig()), context: "a\x1b[1m\nb\xff", want: []string{"context"}},
		"no cluster":                  {text: changed(func(c *clientcmdapi.Config) { delete(c.Clusters, "east") }), want: []string{`cluster "east" of context "main"`}},
		"no user":                     {text: changed(func(c *clientcmdapi.Config) { delete(c.AuthInfos, "admin") }), want: []string{`user "admin" of context "main"`}},
		"the workspaces of kcp":       {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://kcp.example.com/clusters/*" }), want: []string{`server of cluster "east"`, "workspaces of kcp"}},
		"the workspaces of an export": {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://kcp/services/apiexport/a/b/clusters/%2A/" }), want: []string{`server of cluster "east"`, "workspaces of kcp"}},
		"no server":                   {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "" }), want: []string{`server of cluster "east"`, "https://"}},
		"a server without scheme":     {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "east.example.com:6443" }), want: []string{`server of cluster "east"`, "https://"}},
		"a server without host":       {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://:6443" }), want: []string{`server of cluster "east"`}},
		"a server of another scheme":  {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "file:///etc/" + secret }), want: []string{`server of cluster "east"`}},
		"a server that is no URL":     {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://%zz" + secret }), want: []string{`server of cluster "east"`}},
		"credentials in the server":   {text: cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://me:" + secret + "@x.example.com" }), want: []string{`server of cluster "east"`, `user "admin"`}},
		"a proxy that is no URL":      {text: cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://%zz" + secret }), want: []string{`proxy-url of cluster "east"`}},
		"a proxy of another scheme":   {text: cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "ftp://me:" + secret + "@x" }), want: []string{`proxy-url of cluster "east"`}},
		"a proxy without host":        {text: cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://" }), want: []string{`proxy-url of cluster "east"`}},
		"a CA that is no PEM":         {text: cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = []byte(secret) }), want: []string{`certificate-authority-data of cluster "east"`}},
		"token and password":          {text: user(func(u *clientcmdapi.AuthInfo) { u.Username, u.Password = "me", secret }), want: []string{`user "admin"`, "more than one authentication method"}},
		"a group but no user to be":   {text: user(func(u *clientcmdapi.AuthInfo) { u.ImpersonateGroups = []string{"g"} }), want: []string{`user "admin"`, "without impersonating a user"}},
		"a certificate without a key": {text: user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData = certificate }), want: []string{`user "admin"`, "client-key"}},
		"a certificate that is no PEM": {
			text: user(func(u *clientcmdapi.AuthInfo) {
				u.ClientCertificateData, u.ClientKeyData = []byte(secret), []byte(secret)
			}),
			want: []string{`client-certificate-data`, `user "admin"`},
		},
		"the key of another certificate": {
			text: user(func(u *clientcmdapi.AuthInfo) { u.ClientCertificateData, u.ClientKeyData = certificate, otherKey }),
			want: []string{`client-key-data`, `user "admin"`},
		},
		"insecure but with a CA": {
			text: cluster(func(c *clientcmdapi.Cluster) {
				c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, certificate
			}),
			allow: kubeconfig.Allow{InsecureTLS: true},
			want:  []string{`cluster "east"`, "insecure-skip-tls-verify", "certificate authority"},
		},
		"insecure but with a CA file": {
			text:  cluster(func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify, c.CertificateAuthority = true, caFile }),
			allow: kubeconfig.Allow{InsecureTLS: true, Files: true},
			want:  []string{`cluster "east"`, "insecure-skip-tls-verify", "certificate authority"},
		},
		"exec without a command": {
			text: user(func(u *clientcmdapi.AuthInfo) {
				*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
			}),
			allow: kubeconfig.Allow{Exec: []kubeconfig.Program{{}}},
			want:  []string{`user "admin"`, "command must be specified"},
		},
		"exec with another interactiveMode": {
			text: user(func(u *clientcmdapi.AuthInfo) {
				*u = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{Command: "x", APIVersion: "v1", InteractiveMode: secret}}
			}),
			allow: kubeconfig.Allow{Exec: programs},
			want:  []string{`user "admin"`, "interactiveMode", "Never"},
		},
		"a file that does not exist": {
			text:  user(func(u *clientcmdapi.AuthInfo) { *u = clientcmdapi.AuthInfo{TokenFile: "/nowhere/token"} }),
			allow: kubeconfig.Allow{Files: true},
			want:  []string{`user "admin"`, "/nowhere/token"},
		},
		"long names": {
			text: []byte(fmt.Sprintf("current-context: %[1]s\ncontexts: [{name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}]\n"+
				"users: [{name: %[1]s, user: {tokenFile: /dev/null}}]\n"+
				"clusters: [{name: %[1]s, cluster: {server: 'https://x', insecure-skip-tls-verify: true}}]", long)),
			want: nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := kubeconfig.Member("m", tc.text, tc.context, tc.allow)
			reason := kubeconfig.ReasonInvalid
			if tc.want == nil {
				reason = kubeconfig.ReasonRefused
			}
			wantError(t, m.Err, reason, tc.want...)
		})
	}
}

// newCertificate returns a self-signed certificate and its key, as PEM.
func newCertificate(tb testing.TB) (certificate, key []byte) {
	tb.Helper()
	return newCertificateUntil(tb, time.Now().Add(time.Hour))
}

func newCertificateUntil(tb testing.TB, end time.Time) (certificate, key []byte) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: privateDER})
}

func TestMemberHasWhatTheContextSays(t *testing.T) {
	certificate, key := newCertificate(t)
	config := newKubeconfig()
	*config.Clusters["east"] = clientcmdapi.Cluster{
		Server: "https://east.example.com:6443/base", TLSServerName: "other.example.com", CertificateAuthorityData: certificate,
		ProxyURL: "socks5://proxy.example.com:1080", DisableCompression: true,
	}
	*config.AuthInfos["admin"] = clientcmdapi.AuthInfo{
		ClientCertificateData: certificate, ClientKeyData: key,
		Impersonate: "alice", ImpersonateUID: "1", ImpersonateGroups: []string{"staff"},
		ImpersonateUserExtra: map[string][]string{"reason": {"test"}},
	}
	text := write(t, config)

	m := kubeconfig.Member("m", text, "", kubeconfig.Allow{})
	if err := m.Validate(); err != nil || m.Err != nil {
		t.Fatalf("got %v, %v", err, m.Err)
	}
	proxy, err := m.Config.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "east.example.com"}})
	if err != nil || proxy.String() != "socks5://proxy.example.com:1080" {
		t.Errorf("proxy %v, %v", proxy, err)
	}
	m.Config.Proxy = nil
	want := &rest.Config{
		Host:               "https://east.example.com:6443/base",
		DisableCompression: true,
		TLSClientConfig:    rest.TLSClientConfig{ServerName: "other.example.com", CAData: certificate, CertData: certificate, KeyData: key},
		Impersonate: rest.ImpersonationConfig{
			UserName: "alice", UID: "1", Groups: []string{"staff"}, Extra: map[string][]string{"reason": {"test"}},
		},
	}
	if diff := cmp.Diff(want, m.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}

	m = kubeconfig.Member("m", text, "other", kubeconfig.Allow{})
	if diff := cmp.Diff(&rest.Config{Host: "https://west.example.com", BearerToken: secret}, m.Config); diff != "" {
		t.Errorf("config of the other context (-want +got):\n%s", diff)
	}
}

func TestAContextWithoutAUserHasNoCredentials(t *testing.T) {
	config := newKubeconfig()
	config.Contexts["main"].AuthInfo = ""
	m := kubeconfig.Member("m", write(t, config), "", kubeconfig.Allow{})
	if diff := cmp.Diff(&rest.Config{Host: "https://east.example.com:6443"}, m.Config); diff != "" {
		t.Errorf("%v; config (-want +got):\n%s", m.Err, diff)
	}
}

func TestPlainHTTPSendsNoCredentials(t *testing.T) {
	config := newKubeconfig()
	config.Clusters["east"].Server = "http://east.example.com"
	m := kubeconfig.Member("m", write(t, config), "", kubeconfig.Allow{PlainHTTP: true})
	if diff := cmp.Diff(&rest.Config{Host: "http://east.example.com"}, m.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}

func TestASecretOfTheGreatestSizeIsRead(t *testing.T) {
	const size = 1 << 20 // what a Secret may hold
	config := newKubeconfig()
	for i := range 1020 {
		name := fmt.Sprintf("user-%d", i)
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: strings.Repeat("t", 1000)}
	}
	text := write(t, config)
	if len(text) < size {
		t.Fatalf("the kubeconfig has only %d bytes", len(text))
	}
	if m := kubeconfig.Member("m", text, "", kubeconfig.Allow{}); m.Err != nil {
		t.Error(m.Err)
	}
}

func TestRevisionChangesWithWhatTheContextUsesAlone(t *testing.T) {
	revision := func(text []byte) string {
		m := kubeconfig.Member("m", text, "", kubeconfig.Allow{Exec: programs})
		if m.Err != nil {
			t.Fatal(m.Err)
		}
		return m.Revision
	}
	before := revision(write(t, newKubeconfig()))
	for name, tc := range map[string]struct {
		change func(c *clientcmdapi.Config)
		same   bool
	}{
		"nothing":              {func(*clientcmdapi.Config) {}, true},
		"another user":         {func(c *clientcmdapi.Config) { c.AuthInfos["guest"].Token = "x" }, true},
		"another cluster":      {func(c *clientcmdapi.Config) { c.Clusters["west"].Server = "https://x" }, true},
		"a new context":        {func(c *clientcmdapi.Config) { c.Contexts["new"] = c.Contexts["main"] }, true},
		"the namespace":        {func(c *clientcmdapi.Config) { c.Contexts["main"].Namespace = "x" }, true},
		"the context's name":   {func(c *clientcmdapi.Config) { c.CurrentContext, c.Contexts["new"] = "new", c.Contexts["main"] }, true},
		"notes of other tools": {func(c *clientcmdapi.Config) { c.Clusters["east"].Extensions = extension("x") }, true},
		"notes on the user":    {func(c *clientcmdapi.Config) { c.AuthInfos["admin"].Extensions = extension("x") }, true},
		"the token":            {func(c *clientcmdapi.Config) { c.AuthInfos["admin"].Token = "x" }, false},
		"the server":           {func(c *clientcmdapi.Config) { c.Clusters["east"].Server = "https://x" }, false},
		"the proxy":            {func(c *clientcmdapi.Config) { c.Clusters["east"].ProxyURL = "https://x" }, false},
		"who is impersonated":  {func(c *clientcmdapi.Config) { c.AuthInfos["admin"].Impersonate = "x" }, false},
		"the user":             {func(c *clientcmdapi.Config) { c.Contexts["main"].AuthInfo, c.AuthInfos["guest"].Token = "guest", "x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig()
			tc.change(config)
			if same := revision(write(t, config)) == before; same != tc.same {
				t.Errorf("the revision is the same: %t, want %t", same, tc.same)
			}
		})
	}

	t.Run("JSON for YAML", func(t *testing.T) {
		text, err := yaml.ToJSON(write(t, newKubeconfig()))
		if err != nil {
			t.Fatal(err)
		}
		if revision(text) != before {
			t.Error("the revision depends on how the kubeconfig is written")
		}
	})
	t.Run("what is passed on to exec", func(t *testing.T) {
		withExec := func(note string) []byte {
			config := newKubeconfig()
			config.Clusters["east"].Extensions = extension(note)
			config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
				Command: "x", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}}
			return write(t, config)
		}
		first, same, other := revision(withExec("a")), revision(withExec("a")), revision(withExec("b"))
		if first != same || first == other {
			t.Error("the revision does not follow what is passed on to exec")
		}
	})
}

func extension(note string) map[string]runtime.Object {
	return map[string]runtime.Object{
		"client.authentication.k8s.io/exec": &runtime.Unknown{Raw: []byte(`{"note":"` + note + `"}`), ContentType: runtime.ContentTypeJSON},
	}
}

// wantHarmless checks that a member needs nothing that is refused by default.
func wantHarmless(t *testing.T, m fleet.Member) {
	t.Helper()
	c := m.Config
	server, err := url.Parse(c.Host)
	switch {
	case c.ExecProvider != nil || c.AuthProvider != nil || c.AuthConfigPersister != nil:
		t.Error("runs programs or plugins")
	case c.BearerTokenFile != "" || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "":
		t.Error("reads files")
	case c.Insecure || err != nil || server.Scheme != "https" || server.User != nil:
		t.Errorf("does not check the server: %v", err)
	case m.Revision == "":
		t.Error("has no revision")
	}
}
