package kubeconfig_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// object is a JSON object.
type object = map[string]any

func toJSON(tb testing.TB, v any) []byte {
	tb.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// argoCDData is the data of a good Secret of Argo CD. The changes replace keys, and remove those that they have as nil.
func argoCDData(changes map[string][]byte) map[string][]byte {
	data := map[string][]byte{
		"name": []byte("east"), "server": []byte("https://east.example.com"), "config": []byte(`{"bearerToken": "` + secret + `"}`),
	}
	maps.Copy(data, changes)
	maps.DeleteFunc(data, func(_ string, value []byte) bool { return value == nil })
	return data
}

func argoCDConfig(text []byte) map[string][]byte {
	return argoCDData(map[string][]byte{"config": text})
}

// readArgoCD returns the one member that the data of a Secret of Argo CD describes.
func readArgoCD(tb testing.TB, data map[string][]byte, allow kubeconfig.Allow) fleet.Member {
	tb.Helper()
	members, err := kubeconfig.ArgoCD().Members(&corev1.Secret{Data: data}, kubeconfig.Reading{Allow: allow})
	if err != nil || len(members) != 1 {
		tb.Fatalf("got %d members and the error %v, want one member", len(members), err)
	}
	return members[0]
}

func TestAMemberHasWhatItsArgoCDSecretSays(t *testing.T) {
	certificate, key := newCertificate(t)
	encoded := func(pem []byte) string { return base64.StdEncoding.EncodeToString(pem) }
	exec := func(config *clientcmdapi.ExecConfig) *rest.Config {
		config.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
		return &rest.Config{Host: "https://east.example.com", ExecProvider: config}
	}
	for name, tc := range map[string]struct {
		config object
		allow  kubeconfig.Allow
		want   *rest.Config
	}{
		"nothing": {object{}, kubeconfig.Allow{}, &rest.Config{Host: "https://east.example.com"}},
		"a token": {
			object{"bearerToken": secret},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com", BearerToken: secret},
		},
		"a password": {
			object{"username": "admin", "password": secret},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com", Username: "admin", Password: secret},
		},
		"certificates": {
			object{"tlsClientConfig": object{
				"insecure": false, "serverName": "other.example.com",
				"caData": encoded(certificate), "certData": encoded(certificate), "keyData": encoded(key),
			}},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com", TLSClientConfig: rest.TLSClientConfig{
				ServerName: "other.example.com", CAData: certificate, CertData: certificate, KeyData: key,
			}},
		},
		"base64 in lines": {
			object{"tlsClientConfig": object{"caData": strings.Join(strings.SplitAfter(encoded(certificate), "M"), "\n")}},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com", TLSClientConfig: rest.TLSClientConfig{CAData: certificate}},
		},
		"empty certificates": {
			object{"tlsClientConfig": object{"caData": "", "certData": nil}},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com"},
		},
		"skipped TLS checks": {
			object{"bearerToken": secret, "tlsClientConfig": object{"insecure": true}},
			kubeconfig.Allow{InsecureTLS: true},
			&rest.Config{Host: "https://east.example.com", BearerToken: secret, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		},
		"no compression": {
			object{"disableCompression": true},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com", DisableCompression: true},
		},
		"names in another case, as the parser of Argo CD takes them, and names that it does not know": {
			object{"BEARERTOKEN": secret, "bearerTokenFile": "/etc/passwd", "more": object{"a": 1}},
			kubeconfig.Allow{},
			&rest.Config{Host: "https://east.example.com", BearerToken: secret},
		},
		"a program": {
			object{"execProviderConfig": object{
				"command": "login", "args": []string{"-x", secret}, "env": object{"B": "2", "A": secret}, "apiVersion": "client.authentication.k8s.io/v1",
				"installHint": "get it", "provideClusterInfo": true, "config": object{"clusterName": "east"},
			}, "bearerToken": "ignored", "username": "ignored"},
			kubeconfig.Allow{Exec: programs},
			exec(&clientcmdapi.ExecConfig{
				Command: "login", Args: []string{"-x", secret}, APIVersion: "client.authentication.k8s.io/v1",
				Env:         []clientcmdapi.ExecEnvVar{{Name: "A", Value: secret}, {Name: "B", Value: "2"}},
				InstallHint: "get it", ProvideClusterInfo: true,
				Config: &runtime.Unknown{Raw: []byte(`{"clusterName":"east"}`), ContentType: runtime.ContentTypeJSON},
			}),
		},
		"a program without more": {
			object{"execProviderConfig": object{"command": "login", "apiVersion": "client.authentication.k8s.io/v1", "config": nil}},
			kubeconfig.Allow{Exec: programs},
			exec(&clientcmdapi.ExecConfig{Command: "login", APIVersion: "client.authentication.k8s.io/v1"}),
		},
		"AWS, which goes before another program": {
			object{
				"awsAuthConfig":      object{"clusterName": "east", "roleARN": "arn:aws:iam::1:role/x", "profile": "dev"},
				"execProviderConfig": object{"command": "login"},
			},
			kubeconfig.Allow{Exec: programs},
			exec(&clientcmdapi.ExecConfig{
				Command: "argocd-k8s-auth", APIVersion: "client.authentication.k8s.io/v1beta1",
				Args:        []string{"aws", "--cluster-name", "east", "--role-arn", "arn:aws:iam::1:role/x", "--profile", "dev"},
				InstallHint: "argocd-k8s-auth comes with Argo CD; awsAuthConfig in a Secret of Argo CD asks for it",
			}),
		},
		"AWS with the role of the manager": {
			object{"awsAuthConfig": object{"clusterName": "east"}},
			kubeconfig.Allow{Exec: programs},
			exec(&clientcmdapi.ExecConfig{
				Command: "argocd-k8s-auth", APIVersion: "client.authentication.k8s.io/v1beta1",
				Args:        []string{"aws", "--cluster-name", "east"},
				InstallHint: "argocd-k8s-auth comes with Argo CD; awsAuthConfig in a Secret of Argo CD asks for it",
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := readArgoCD(t, argoCDConfig(toJSON(t, tc.config)), tc.allow)
			if err := m.Validate(); err != nil || m.Err != nil {
				t.Fatalf("got %v, %v", err, m.Err)
			}
			if diff := cmp.Diff(tc.want, m.Config); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheServerAndTheProxyOfAnArgoCDSecret(t *testing.T) {
	data := argoCDConfig([]byte(`{"proxyUrl": "socks5://proxy.example.com:1080"}`))
	data["server"] = []byte("https://east.example.com:6443/base//")
	m := readArgoCD(t, data, kubeconfig.Allow{})
	if m.Err != nil {
		t.Fatal(m.Err)
	}
	if m.Config.Host != "https://east.example.com:6443/base" {
		t.Errorf("the server is %s", m.Config.Host)
	}
	proxy, err := m.Config.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "east.example.com"}})
	if err != nil || proxy.String() != "socks5://proxy.example.com:1080" {
		t.Errorf("proxy %v, %v", proxy, err)
	}
}

// argoCDRefusals are what is refused in a Secret of Argo CD unless it is allowed.
var argoCDRefusals = map[string]struct {
	config string
	server string
	allow  kubeconfig.Allow
	want   []string // in the message
}{
	"execProviderConfig": {
		config: `{"execProviderConfig": {"command": "/bin/` + secret + `", "args": ["` + secret + `"], "env": {"X": "` + secret + `"}, "apiVersion": "client.authentication.k8s.io/v1"}}`,
		allow:  kubeconfig.Allow{Exec: programs},
		want:   []string{"execProviderConfig needs the provider's option Allow.Exec"},
	},
	"execProviderConfig beside a token": {
		config: `{"bearerToken": "` + secret + `", "execProviderConfig": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}}`,
		allow:  kubeconfig.Allow{Exec: programs},
		want:   []string{"execProviderConfig needs the provider's option Allow.Exec"},
	},
	"awsAuthConfig": {
		config: `{"awsAuthConfig": {"clusterName": "` + secret + `"}}`,
		allow:  kubeconfig.Allow{Exec: programs},
		want:   []string{"awsAuthConfig needs the provider's option Allow.Exec"},
	},
	"tlsClientConfig.insecure": {
		config: `{"bearerToken": "` + secret + `", "tlsClientConfig": {"insecure": true}}`,
		allow:  kubeconfig.Allow{InsecureTLS: true},
		want:   []string{"tlsClientConfig.insecure needs the provider's option Allow.InsecureTLS"},
	},
	"a server with http": {
		config: `{"bearerToken": "` + secret + `"}`, server: "http://east.example.com",
		allow: kubeconfig.Allow{PlainHTTP: true},
		want:  []string{"server with http:// needs the provider's option Allow.PlainHTTP"},
	},
	"several at once": {
		config: `{"awsAuthConfig": {}, "tlsClientConfig": {"insecure": true}}`,
		allow:  kubeconfig.Allow{Exec: programs, InsecureTLS: true},
		want:   []string{"awsAuthConfig needs", "Allow.Exec: its command is not listed there; tlsClientConfig.insecure needs", "Allow.InsecureTLS"},
	},
}

func TestAnArgoCDSecretMayDoNoMoreThanAKubeconfig(t *testing.T) {
	everything := kubeconfig.Allow{Exec: programs, AuthProvider: true, Files: true, InsecureTLS: true, PlainHTTP: true}
	for name, tc := range argoCDRefusals {
		t.Run(name, func(t *testing.T) {
			data := argoCDConfig([]byte(tc.config))
			if tc.server != "" {
				data["server"] = []byte(tc.server)
			}
			for _, allow := range []kubeconfig.Allow{{}, without(everything, tc.allow)} {
				m := readArgoCD(t, data, allow)
				wantError(t, m.Err, kubeconfig.ReasonRefused, append(tc.want, "the Secret of Argo CD is refused")...)
				if m.Config != nil || m.Revision != "" {
					t.Error("there is a config beside the error")
				}
			}
			if m := readArgoCD(t, data, tc.allow); m.Err != nil {
				t.Errorf("refused although %+v is allowed: %v", tc.allow, m.Err)
			}
		})
	}
}

// badArgoCD is what nobody could use, with what the error says.
func badArgoCD(tb testing.TB) map[string]struct {
	data map[string][]byte
	want string
} {
	tb.Helper()
	certificate, key := newCertificate(tb)
	_, otherKey := newCertificate(tb)
	config := func(v any) map[string][]byte { return argoCDConfig(toJSON(tb, v)) }
	tls := func(fields object) map[string][]byte { return config(object{"tlsClientConfig": fields}) }
	server := func(url string) map[string][]byte { return argoCDData(map[string][]byte{"server": []byte(url)}) }
	return map[string]struct {
		data map[string][]byte
		want string
	}{
		"no server":                  {argoCDData(map[string][]byte{"server": nil}), "it has no server"},
		"an empty server":            {server(""), "it has no server"},
		"a server of slashes":        {server("//"), "it has no server"},
		"a server without scheme":    {server("east.example.com"), "server must be a URL that begins with https://"},
		"a server in two lines":      {server("https://east.example.com\n"), "server must be a URL that begins with https://"},
		"a server of another scheme": {server("file:///etc/" + secret), "server must be a URL that begins with https://"},
		"credentials in the server":  {server("https://me:" + secret + "@x"), "server has a user or password in the URL; they belong into config"},
		"many workspaces of kcp":     {server("https://kcp.example.com/clusters/*"), "server is the address of many workspaces of kcp"},
		"a project of two words":     {argoCDData(map[string][]byte{"project": []byte("a b")}), "its project cannot be the value of the label fleet-runtime.dev/argocd-project"},
		"a project of 64 letters":    {argoCDData(map[string][]byte{"project": []byte(strings.Repeat("a", 64))}), "its project cannot be the value of the label"},
		"broken JSON":                {argoCDConfig([]byte(`{"bearerToken": "` + secret)), "config is no JSON object"},
		"YAML":                       {argoCDConfig([]byte("bearerToken: " + secret)), "config is no JSON object"},
		"a token alone":              {argoCDConfig([]byte(secret)), "config is no JSON object"},
		"two objects":                {argoCDConfig([]byte(`{} {"bearerToken": "` + secret + `"}`)), "config is no JSON object"},
		"random bytes":               {argoCDConfig([]byte(randomBytes)), "config is no JSON object"},
		"a list":                     {config([]string{secret}), "config is no JSON object"},
		"a string":                   {config(secret), "config is no JSON object"},
		"a deep object":              {argoCDConfig([]byte(strings.Repeat(`{"a":`, 100_000))), "config is no JSON object"},
		"a number for a token":       {config(object{"bearerToken": 4711}), "bearerToken in config has a value of the wrong type"},
		"a string for an object":     {config(object{"tlsClientConfig": secret}), "tlsClientConfig in config has a value of the wrong type"},
		"a string for a boolean":     {tls(object{"insecure": secret}), "tlsClientConfig.insecure in config has a value of the wrong type"},
		"an object for base64":       {tls(object{"caData": object{secret: secret}}), "tlsClientConfig.caData in config has a value of the wrong type"},
		"a number in an environment": {
			config(object{"execProviderConfig": object{"env": object{secret: 4711}}}),
			"execProviderConfig.env in config has a value of the wrong type",
		},
		"broken base64 of a CA":          {tls(object{"caData": secret + "!"}), "tlsClientConfig.caData is no base64"},
		"broken base64 of a certificate": {tls(object{"certData": secret + "!"}), "tlsClientConfig.certData is no base64"},
		"broken base64 of a key":         {tls(object{"keyData": secret + "!"}), "tlsClientConfig.keyData is no base64"},
		"PEM without base64":             {tls(object{"keyData": string(key)}), "tlsClientConfig.keyData is no base64"},
		"a CA that is no PEM":            {tls(object{"caData": []byte(secret)}), "tlsClientConfig.caData is no PEM certificate"},
		"a certificate without a key":    {tls(object{"certData": certificate}), "tlsClientConfig.certData and tlsClientConfig.keyData need each other"},
		"a key without a certificate":    {tls(object{"keyData": key}), "tlsClientConfig.certData and tlsClientConfig.keyData need each other"},
		"the key of another certificate": {
			tls(object{"certData": certificate, "keyData": otherKey}),
			"tlsClientConfig.certData and tlsClientConfig.keyData are no PEM certificate with its key",
		},
		"insecure but with a CA": {
			tls(object{"insecure": true, "caData": certificate}),
			"tlsClientConfig.insecure cannot be set beside a certificate authority",
		},
		"a token and a password": {
			config(object{"bearerToken": secret, "username": "me", "password": secret}),
			"config: invalid configuration: more than one authentication method found",
		},
		"a program without a command":     {config(object{"execProviderConfig": object{"args": []string{secret}}}), "command must be specified"},
		"a program without an apiVersion": {config(object{"execProviderConfig": object{"command": secret}}), "apiVersion must be specified"},
		"a proxy that is no URL":          {config(object{"proxyUrl": "http://%zz" + secret}), "proxyUrl must be a URL that begins with"},
		"a proxy of another scheme":       {config(object{"proxyUrl": "ftp://me:" + secret + "@x"}), "proxyUrl must be a URL that begins with"},
	}
}

func TestAnArgoCDSecretThatCannotBeUsedSaysWhy(t *testing.T) {
	for name, tc := range badArgoCD(t) {
		t.Run(name, func(t *testing.T) {
			m := readArgoCD(t, tc.data, kubeconfig.Allow{Exec: programs, InsecureTLS: true})
			wantError(t, m.Err, kubeconfig.ReasonInvalid, "the Secret of Argo CD cannot be used: ", tc.want)
		})
	}
}

func TestWhatElseIsInAnArgoCDSecretBecomesNameAndLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		data       map[string][]byte
		wantName   fleet.ClusterName
		wantLabels map[string]string
	}{
		"nothing":                             {nil, "east", map[string]string{}},
		"a long name":                         {map[string][]byte{"name": []byte(strings.Repeat("n", 300))}, fleet.ClusterName(strings.Repeat("n", 300)), map[string]string{}},
		"a URL, the default there":            {map[string][]byte{"name": []byte("https://east.example.com")}, "https://east.example.com", map[string]string{}},
		"no name, so that it is the Secret's": {map[string][]byte{"name": nil}, "", map[string]string{}},
		"all": {
			map[string][]byte{
				"project": []byte("shop"), "shard": []byte("1"), "namespaces": []byte("team-a, team-b,,"), "clusterResources": []byte("true"),
			},
			"east",
			map[string]string{
				kubeconfig.ArgoCDProjectLabel: "shop", kubeconfig.ArgoCDShardLabel: "1",
				kubeconfig.ArgoCDNamespacesLabel: "team-a_team-b", kubeconfig.ArgoCDClusterResourcesLabel: "true",
			},
		},
		"what is no value for a label": {
			map[string][]byte{
				"shard": []byte("-"), "namespaces": []byte(strings.Repeat("n", 64)), "clusterResources": {},
			},
			"east",
			map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := readArgoCD(t, argoCDData(tc.data), kubeconfig.Allow{})
			if m.Err != nil || m.Name != tc.wantName {
				t.Errorf("got the name %q and the error %v, want %q", m.Name, m.Err, tc.wantName)
			}
			if diff := cmp.Diff(tc.wantLabels, m.Labels); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestABadArgoCDSecretStillHasItsNameAndLabels(t *testing.T) {
	data := argoCDConfig([]byte("{"))
	data["project"] = []byte("shop")
	m := readArgoCD(t, data, kubeconfig.Allow{})
	if m.Err == nil || m.Name != "east" || m.Labels[kubeconfig.ArgoCDProjectLabel] != "shop" {
		t.Errorf("got %q with the labels %v and the error %v", m.Name, m.Labels, m.Err)
	}
}

// TestTheLocalClusterIsNoMember: Argo CD takes this address for the cluster that it runs in, and uses its own credentials
// there. Whoever may write a Secret must not get those of the manager.
func TestTheLocalClusterOfArgoCDIsNoMember(t *testing.T) {
	for _, server := range []string{"https://kubernetes.default.svc", "https://kubernetes.default.svc/"} {
		s := &corev1.Secret{Data: argoCDData(map[string][]byte{"server": []byte(server)})}
		members, err := kubeconfig.ArgoCD().Members(s, kubeconfig.Reading{})
		if err != nil || len(members) > 0 {
			t.Errorf("%s: got %d members and the error %v", server, len(members), err)
		}
	}
}

// TestAnArgoCDSecretNeedsNoConfig: some servers ask for no credentials, and Argo CD takes such a Secret.
func TestAnArgoCDSecretNeedsNoConfig(t *testing.T) {
	for name, config := range map[string][]byte{"missing": nil, "empty": {}} {
		m := readArgoCD(t, argoCDConfig(config), kubeconfig.Allow{})
		if diff := cmp.Diff(&rest.Config{Host: "https://east.example.com"}, m.Config); diff != "" {
			t.Errorf("%s: %v; config (-want +got):\n%s", name, m.Err, diff)
		}
	}
}

func TestAnArgoCDSecretOfTheGreatestSizeIsRead(t *testing.T) {
	token := strings.Repeat("t", corev1.MaxSecretSize-100)
	m := readArgoCD(t, argoCDConfig([]byte(`{"bearerToken": "`+token+`"}`)), kubeconfig.Allow{})
	if m.Err != nil || m.Config.BearerToken != token {
		t.Error("the token was not read:", m.Err)
	}
}

func TestTheRevisionOfAnArgoCDSecretFollowsWhatIsUsed(t *testing.T) {
	revision := func(data map[string][]byte) string {
		m := readArgoCD(t, data, kubeconfig.Allow{Exec: programs, InsecureTLS: true})
		if m.Err != nil {
			t.Fatal(m.Err)
		}
		return m.Revision
	}
	const program = `"command": "x", "apiVersion": "client.authentication.k8s.io/v1"`
	exec := func(fields string) map[string][]byte {
		return argoCDConfig([]byte(`{"execProviderConfig": {` + program + fields + `}}`))
	}
	for name, tc := range map[string]struct {
		one, other map[string][]byte
		same       bool
	}{
		"other spaces":         {argoCDConfig([]byte(`{"bearerToken":"x"}`)), argoCDConfig([]byte("{ \"bearerToken\" :\n\"x\"}")), true},
		"another name":         {argoCDData(nil), argoCDData(map[string][]byte{"name": []byte("x"), "project": []byte("x")}), true},
		"a slash":              {argoCDData(nil), argoCDData(map[string][]byte{"server": []byte("https://east.example.com/")}), true},
		"another order of env": {exec(`, "env": {"A": "1", "B": "2"}`), exec(`, "env": {"B": "2", "A": "1"}`), true},
		"what AWS displaces": {
			argoCDConfig([]byte(`{"awsAuthConfig": {}, "bearerToken": "x"}`)), argoCDConfig([]byte(`{"awsAuthConfig": {}}`)), true,
		},
		"another server":  {argoCDData(nil), argoCDData(map[string][]byte{"server": []byte("https://x")}), false},
		"another token":   {argoCDData(nil), argoCDConfig([]byte(`{"bearerToken": "x"}`)), false},
		"another env":     {exec(`, "env": {"A": "1"}`), exec(`, "env": {"A": "2"}`), false},
		"another config":  {exec(`, "config": {"a": 1}`), exec(`, "config": {"a": 2}`), false},
		"another profile": {argoCDConfig([]byte(`{"awsAuthConfig": {}}`)), argoCDConfig([]byte(`{"awsAuthConfig": {"profile": "x"}}`)), false},
		"another check of the server": {
			argoCDConfig([]byte(`{"tlsClientConfig": {"insecure": true}}`)), argoCDConfig([]byte(`{}`)), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if same := revision(tc.one) == revision(tc.other); same != tc.same {
				t.Errorf("the revision is the same: %t, want %t", same, tc.same)
			}
		})
	}
}

func TestArgoCDReadsTheLabelOfItsSecretsAlone(t *testing.T) {
	for value, want := range map[string]bool{"cluster": true, "repository": false, "repo-creds": false} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"argocd.argoproj.io/secret-type": value}}}
		if got := has(kubeconfig.ArgoCD(), s); got != want {
			t.Errorf("Secrets of type %s are read: %t, want %t", value, got, want)
		}
	}
}
