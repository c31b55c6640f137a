package command_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubeconfigOf writes a kubeconfig with a member at a server, which nobody asks.
func kubeconfigOf(t *testing.T, server, more string) string {
	t.Helper()
	return write(t, `apiVersion: v1
kind: Config
current-context: hub
contexts:
- {name: hub, context: {cluster: hub, user: me}}
- {name: member, context: {cluster: member, user: me}}
clusters:
- {name: hub, cluster: {server: "https://hub.example.com"}}
- {name: member, cluster: {server: "`+server+`"`+more+`}}
users:
- {name: me, user: {token: hunter2-hunter2}}
`)
}

func TestAWrongCommandLineAsksNoServer(t *testing.T) {
	t.Parallel()
	good := rules(t)
	at := kubeconfigOf(t, "https://member.example.com", "")
	join := func(more ...string) []string {
		return append([]string{"join", "east", "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "member", "--rules", good}, more...)
	}
	at2 := func(server, more string) []string {
		path := kubeconfigOf(t, server, more)
		return []string{"join", "east", "--kubeconfig", path, "--member-kubeconfig", path, "--member-context", "member", "--rules", good}
	}
	shown := httptest.NewTLSServer(nil)
	t.Cleanup(shown.Close)
	authorityWithKey := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: shown.Certificate().Raw}))+
		"-----BEGIN PRIVATE KEY-----\naHVudGVyMi1odW50ZXIy\n-----END PRIVATE KEY-----\n")
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no such command":            {[]string{"jion"}, "unknown command"},
		"no such flag":               {[]string{"list", "--nope"}, "unknown flag"},
		"a level of verbosity":       {[]string{"list", "-v=8"}, "unknown shorthand flag"}, // it would log tokens
		"no name":                    {[]string{"join", "--kubeconfig", at}, "accepts 1 arg"},
		"no member":                  {[]string{"join", "east", "--kubeconfig", at, "--rules", good}, "--member-context"},
		"no rules":                   {[]string{"join", "east", "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "member"}, "--rules"},
		"both modes":                 {join("--minted", "--federated", "me"), "exclude each other"},
		"a name in capitals":         {append([]string{"join", "East"}, join()[2:]...), "cannot be that of a member"},
		"a name that is too long":    {append([]string{"join", strings.Repeat("a", 250)}, join()[2:]...), "may have"},
		"a name of 10000 characters": {append([]string{"join", strings.Repeat("a", 10000)}, join()[2:]...), "cannot be that of a member"},
		"a loopback server":          {at2("https://127.0.0.1:6443", ""), "--advertise-server"},
		"localhost":                  {at2("https://localhost:6443", ""), "--advertise-server"},
		"a server without TLS":       {at2("http://member.example.com", ""), "https"},
		"an unchecked certificate":   {at2("https://member.example.com", ", insecure-skip-tls-verify: true"), "--member-certificate-authority"},
		"a server that is no URL":    {join("--advertise-server", "member.example.com"), "https"},
		"a server with a password":   {join("--advertise-server", "https://me:secret@member.example.com"), "https"},
		"a proxy with a password":    {join("--advertise-proxy-url", "http://me:secret@proxy.example.com"), "--advertise-proxy-url"},
		"a CA with its key":          {at2("https://member.example.com", ", certificate-authority: "+authorityWithKey), "certificates alone"},
		"a way without TLS":          {append(at2("http://member.example.com", ""), "--advertise-server", "https://member.example.com"), "without TLS"},
		"a token to go without TLS":  {[]string{"check", "east", "--kubeconfig", at, "--member-server", "http://member.example.com"}, "--member-server"},
		"labels that are none":       {join("--labels", "a=b=c"), "--labels"},
		"an account without a space": {join("--service-account", "fleet"), "NAMESPACE/NAME"},
		"an unknown dry run":         {join("--dry-run=maybe"), "--dry-run"},
		"no context of the member":   {[]string{"join", "east", "--kubeconfig", at, "--context", "hub", "--member-kubeconfig", write(t, "apiVersion: v1\nkind: Config\n"), "--rules", good}, "--member-context"},
		"a format without a dry run": {join("-o", "yaml"), "--dry-run=client"},
		"rights for nobody knows":    {[]string{"rbac", "east", "--rules", good, "--dry-run=client"}, "--service-account"},
		"an unknown way to leave":    {[]string{"leave", "east", "--kubeconfig", at, "--dependents", "burn"}, "keep"},
		"a selector that is none":    {[]string{"list", "--kubeconfig", at, "-l", "a b c"}, "--selector"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t.Context(), c.args...)
			if r.code != 2 || !strings.Contains(r.errOut, c.says) || r.out != "" {
				t.Errorf("exit code %d, %q, %q; want 2 and %q", r.code, r.out, r.errOut, c.says)
			}
			if strings.Contains(r.errOut, "hunter2") || strings.Contains(r.errOut, "secret@") {
				t.Errorf("a credential is shown: %q", r.errOut)
			}
		})
	}
}

func TestUnknownContextsAreNamed(t *testing.T) {
	t.Parallel()
	at := kubeconfigOf(t, "https://member.example.com", "")
	r := run(t.Context(), "join", "east", "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "nowhere", "--rules", rules(t))
	if r.code != 1 || !strings.Contains(r.errOut, "nowhere") || !strings.Contains(r.errOut, "member") {
		t.Errorf("%+v", r)
	}
}

func TestRulesAreRightsAlone(t *testing.T) {
	t.Parallel()
	const role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n"
	at := kubeconfigOf(t, "https://member.example.com", "")
	for name, c := range map[string]struct{ text, says string }{
		"a Secret":          {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "no right"},
		"a Pod":             {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "no right"},
		"an unknown field":  {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrule: []\n", "rule"},
		"a kind of no API":  {"apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: a}\n", "Foo"},
		"no YAML":           {"{{{{", "rules"},
		"two accounts":      {role + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, namespace: in}\n---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: b, namespace: in}\n", "2 service accounts"},
		"a file of 5 MB":    {strings.Repeat("# nothing\n", 500_000), "longer than"},
		"a file of nothing": {"", "no role"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t.Context(), "join", "east", "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "member",
				"--rules", write(t, c.text), "--dry-run=client")
			if r.code == 0 || !strings.Contains(r.errOut, c.says) || r.out != "" {
				t.Errorf("exit code %d, %q, %q; want %q", r.code, r.out, r.errOut, c.says)
			}
		})
	}
	r := run(t.Context(), "join", "east", "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "member",
		"--rules", filepath.Join(t.TempDir(), "missing.yaml"), "--dry-run=client")
	if r.code == 0 || !strings.Contains(r.errOut, "missing.yaml") {
		t.Errorf("a file that is not there: %+v", r)
	}
}

func TestADryRunOfTheClientPrintsWhatWouldBeMade(t *testing.T) {
	t.Parallel()
	at := kubeconfigOf(t, "https://member.example.com", "")
	r := run(t.Context(), "join", "east", "--kubeconfig", at, "--member-kubeconfig", at, "--member-context", "member", "--rules", rules(t),
		"--labels", "region=eu", "--dry-run=client", "-o", "yaml")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	golden(t, "testdata/join.yaml", r.out)
	if strings.Contains(r.out, "hunter2") {
		t.Error("the caller's token is shown")
	}
}

func TestADryRunOfTheClientPrintsRightsForTheAccountThatIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		documents string
		args      []string
		says      string
		code      int
	}{
		"by a flag":               {roleDocument, []string{"--service-account", "team/worker"}, "namespace: team\n", 0},
		"by the file":             {roleDocument + "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {namespace: team, name: worker}\n", nil, "namespace: team\n", 0},
		"by a file without a use": {roleDocument + "---\n" + fmt.Sprintf(bindingDocument, "ClusterRoleBinding", "checksums", "other"), []string{"--service-account", "team/worker"}, "they could do nothing", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t.Context(), append([]string{"rbac", "east", "--rules", write(t, c.documents), "--dry-run=client"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.out+r.errOut, c.says) || strings.Contains(r.out, "fleet-system") {
				t.Errorf("%+v", r)
			}
		})
	}
}

// golden compares with a file, and writes it if the environment says UPDATE_GOLDEN.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is printed now; set UPDATE_GOLDEN=yes to write it anew:\n%s", path, got)
	}
}
