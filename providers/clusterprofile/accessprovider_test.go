package clusterprofile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/oneline"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// theFile has all that the format has.
const theFile = `{
  "providers": [
    {
      "name": "google",
      "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./gke-gcloud-auth-plugin",
        "args": ["--verbose"],
        "env": [{"name": "A", "value": "1"}],
        "installHint": "install it",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": true
      },
      "profileSourcedCLIArgsPolicy": "Append",
      "profileSourcedEnvVarsPolicy": "AppendIfNotExists"
    },
    {
      "name": "secretreader",
      "execConfig": {"apiVersion": "client.authentication.k8s.io/v1beta1", "args": null, "command": "reader", "env": null}
    }
  ]
}`

func TestTheFileOfAccessProvidersIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "providers.json")
	if err := os.WriteFile(path, []byte(theFile), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadAccessProviders(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []AccessProvider{
		{
			Name: "google",
			ExecConfig: clientcmdv1.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: "./gke-gcloud-auth-plugin", Args: []string{"--verbose"},
				Env: []clientcmdv1.ExecEnvVar{{Name: "A", Value: "1"}}, InstallHint: "install it",
				InteractiveMode: clientcmdv1.IfAvailableExecInteractiveMode, ProvideClusterInfo: true,
			},
			Args: AppendArgs, Env: AppendEnvIfNotExists,
		},
		{
			Name:       "secretreader",
			ExecConfig: clientcmdv1.ExecConfig{APIVersion: "client.authentication.k8s.io/v1beta1", Command: "reader"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := ReadAccessProviders(path + ".missing"); err == nil || !strings.Contains(err.Error(), path+".missing") {
		t.Errorf("the error over a missing file is %v", err)
	}
}

func TestAFileOfAccessProvidersThatCannotBeUsedIsAnError(t *testing.T) {
	const version = `"apiVersion": "client.authentication.k8s.io/v1"`
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":          {`{"providers": [`, "yaml"},
		"an unknown field": {`{"providers": [{"name": "a", "profileSourcedCLIArgPolicy": "Ignore"}]}`, "profileSourcedCLIArgPolicy"},
		"no name":          {`{"providers": [{"execConfig": {"command": "x", ` + version + `}}]}`, `access provider 0 (""): give it a name`},
		"a name twice": {
			`{"providers": [{"name": "a", "execConfig": {"command": "x", ` + version + `}}, {"name": "a", "execConfig": {"command": "x", ` + version + `}}]}`,
			`access provider 1 ("a"): give it a name of its own`,
		},
		"no program": {`{"providers": [{"name": "a"}]}`, `access provider 0 ("a"): set the command`},
		"no version": {`{"providers": [{"name": "a", "execConfig": {"command": "x"}}]}`, `set the apiVersion of its execConfig`},
		"an old version": {
			`{"providers": [{"name": "a", "execConfig": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}]}`,
			`not to "client.authentication.k8s.io/v1alpha1"`,
		},
		"another policy for arguments": {
			`{"providers": [{"name": "a", "execConfig": {"command": "x", ` + version + `}, "profileSourcedCLIArgsPolicy": "append"}]}`,
			`set its profileSourcedCLIArgsPolicy to one of ["Ignore" "Append"], not to "append"`,
		},
		"another policy for variables": {
			`{"providers": [{"name": "a", "execConfig": {"command": "x", ` + version + `}, "profileSourcedEnvVarsPolicy": "Append"}]}`,
			`set its profileSourcedEnvVarsPolicy to one of ["Ignore" "AppendIfNotExists" "Replace"], not to "Append"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse([]byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %s", err, tc.want)
			}
		})
	}
}

// configured is an access provider whose program has arguments and variables of its own.
func configured(args ArgsPolicy, env EnvPolicy) AccessProvider {
	program := clientcmdv1.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "program", ProvideClusterInfo: true,
		Args: make([]string, 1, 10), // a slice that others could append to
		Env:  []clientcmdv1.ExecEnvVar{{Name: "B", Value: "mine"}, {Name: "A", Value: "mine"}},
	}
	program.Args[0] = "--mine"
	return AccessProvider{Name: "test", ExecConfig: program, Args: args, Env: env}
}

// describedCluster is a cluster as a profile has it, with extensions in JSON.
func describedCluster(extensions ...string) clientcmdv1.Cluster {
	c := clientcmdv1.Cluster{Server: "https://east.example.com", TLSServerName: "east"}
	for i := 0; i < len(extensions); i += 2 {
		c.Extensions = append(c.Extensions, clientcmdv1.NamedExtension{
			Name: extensions[i], Extension: runtime.RawExtension{Raw: []byte(extensions[i+1])},
		})
	}
	return c
}

// memberOf returns the member that a cluster becomes.
func memberOf(t *testing.T, a AccessProvider, c clientcmdv1.Cluster) fleet.Member {
	t.Helper()
	m := a.member("test", c, kubeconfig.Allow{})
	if m.Err != nil {
		t.Fatal(m.Err)
	}
	return m
}

func TestPoliciesSayWhatProfilesAddToAProgram(t *testing.T) {
	mine := []clientcmdapi.ExecEnvVar{{Name: "B", Value: "mine"}, {Name: "A", Value: "mine"}}
	for name, tc := range map[string]struct {
		args     ArgsPolicy
		env      EnvPolicy
		wantArgs []string
		wantEnv  []clientcmdapi.ExecEnvVar
	}{
		"by default nothing": {"", "", []string{"--mine"}, mine},
		"nothing":            {IgnoreArgs, IgnoreEnv, []string{"--mine"}, mine},
		"arguments":          {AppendArgs, "", []string{"--mine", "--theirs", "x"}, mine},
		"new variables": {"", AppendEnvIfNotExists, []string{"--mine"}, append(mine[:2:2],
			clientcmdapi.ExecEnvVar{Name: "C", Value: "theirs"}, clientcmdapi.ExecEnvVar{Name: "D", Value: "theirs"})},
		"all variables": {"", ReplaceEnv, []string{"--mine"}, []clientcmdapi.ExecEnvVar{
			{Name: "B", Value: "mine"}, {Name: "A", Value: "theirs"}, {Name: "C", Value: "theirs"}, {Name: "D", Value: "theirs"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := describedCluster(
				argsExtension, `["--theirs", "x"]`, envsExtension, `{"D": "theirs", "C": "theirs", "A": "theirs"}`,
				execExtension, `{"clusterName": "east"}`, "another", `{}`,
			)
			got := memberOf(t, configured(tc.args, tc.env), c).Config
			if got.Host != c.Server || got.ServerName != c.TLSServerName {
				t.Errorf("the cluster is %s, %s", got.Host, got.ServerName)
			}
			want := &clientcmdapi.ExecConfig{
				APIVersion: "client.authentication.k8s.io/v1", Command: "program", ProvideClusterInfo: true,
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Args: tc.wantArgs, Env: tc.wantEnv,
				Config: &runtime.Unknown{Raw: []byte(`{"clusterName":"east"}`), ContentType: runtime.ContentTypeJSON},
			}
			if diff := cmp.Diff(want, got.ExecProvider, cmpopts.IgnoreUnexported(clientcmdapi.ExecConfig{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatOneProfileAddsIsAddedForNoOther(t *testing.T) {
	a := configured(AppendArgs, ReplaceEnv)
	profile := func(cluster string) clientcmdv1.Cluster {
		return describedCluster(argsExtension, `["--cluster=`+cluster+`"]`, envsExtension, `{"A": "`+cluster+`"}`)
	}
	east := memberOf(t, a, profile("east"))
	west := memberOf(t, a, profile("west"))
	again := memberOf(t, a, profile("east"))
	if diff := cmp.Diff([]string{"--mine", "--cluster=west"}, west.Config.ExecProvider.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"--mine", "--cluster=east"}, east.Config.ExecProvider.Args); diff != "" {
		t.Errorf("arguments of the first, after the second (-want +got):\n%s", diff)
	}
	if got := west.Config.ExecProvider.Env[1].Value; got != "west" {
		t.Errorf("variable A is %q", got)
	}
	if again.Revision != east.Revision || west.Revision == east.Revision {
		t.Errorf("revisions: %s, the same again %s, another %s", east.Revision, again.Revision, west.Revision)
	}
}

func TestAnExtensionThatCannotBeUsedIsAnError(t *testing.T) {
	for name, tc := range map[string]struct{ extension, value, want string }{
		"arguments in a map":         {argsExtension, `{"a": "b"}`, "additional-args: it must be a list of strings"},
		"arguments that are numbers": {argsExtension, `[1]`, "additional-args: it must be a list of strings"},
		"variables in a list":        {envsExtension, `["A=b"]`, "additional-envs: it must be a map of strings"},
		"a variable within a name":   {envsExtension, `{"A=b": "c"}`, `additional-envs: "A=b" cannot be the name of a variable`},
		"a variable without a name":  {envsExtension, `{"": "c"}`, `additional-envs: "" cannot be the name of a variable`},
		"too many arguments":         {argsExtension, "[" + strings.Repeat(`"a",`, 100) + `"a"]`, "additional-args: it has 101 arguments, 100 are allowed"},
		"too many variables":         {envsExtension, manyVariables(101), "additional-envs: it has 101 variables, 100 are allowed"},
		"too long arguments":         {argsExtension, `["` + strings.Repeat("a", 64<<10) + `"]`, "additional-args: it has 65540 bytes, 65536 are allowed"},
		"too much configuration":     {execExtension, `{"a":"` + strings.Repeat("a", 64<<10) + `"}`, "exec: it has 65544 bytes, 65536 are allowed"},
		"no value at all":            {envsExtension, ``, "additional-envs: it must be a map of strings"},
	} {
		t.Run(name, func(t *testing.T) {
			err := configured(AppendArgs, AppendEnvIfNotExists).member(
				"test", describedCluster(tc.extension, tc.value), kubeconfig.Allow{}).Err
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %s", err, tc.want)
			}
		})
	}
}

func TestASecretMayCallItsKeyConfigInEitherSpelling(t *testing.T) {
	text := []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "https://east.example.com"}}], "users": [{"name": "a", "user": {}}]}`)
	for name, data := range map[string]map[string][]byte{
		"Config": {"Config": text},
		"config": {"config": text},
		"both":   {"Config": text, "config": []byte("{")},
	} {
		t.Run(name, func(t *testing.T) {
			if m := (Provider{}).bySecret("east", &corev1.Secret{Data: data}); m.Err != nil {
				t.Error(m.Err)
			}
		})
	}
	if m := (Provider{}).bySecret("east", &corev1.Secret{}); m.Err == nil || !strings.Contains(m.Err.Error(), `"Config"`) {
		t.Errorf("without a key the error is %v, which does not name the key of the KEP", m.Err)
	}
}

// manyVariables is a map of variables, in JSON.
func manyVariables(n int) string {
	pairs := make([]string, n)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"A%d": "x"`, i)
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

func FuzzAProfileNeverChangesWhatIsConfigured(f *testing.F) {
	f.Add(`["--theirs"]`, `{"A": "theirs", "C": ""}`, `{"clusterName": "east"}`, "https://east.example.com")
	f.Add(`null`, `null`, `null`, "")
	f.Add(`"x"`, `{"A": "1", "a\u0000": "=", "PATH": "/"}`, `{"kind": "Config", "apiVersion": "v1"}`, "exec: {}")
	f.Fuzz(func(t *testing.T, args, envs, config, server string) {
		for _, raw := range []string{args, envs, config} {
			if !json.Valid([]byte(raw)) {
				t.Skip("an API server hands out valid JSON only")
			}
		}
		c := describedCluster(argsExtension, args, envsExtension, envs, execExtension, config)
		c.Server = server
		for _, env := range []EnvPolicy{IgnoreEnv, AppendEnvIfNotExists, ReplaceEnv} {
			a := configured(AppendArgs, env)
			m := a.member("test", c, kubeconfig.Allow{})
			if diff := cmp.Diff(configured(AppendArgs, env), a); diff != "" {
				t.Fatalf("the configuration has changed (-want +got):\n%s", diff)
			}
			if m.Err != nil {
				if text := m.Err.Error(); text != oneline.Text(text, 2000) {
					t.Errorf("the error is not fit to be shown: %q", text)
				}
				continue
			}
			got := m.Config.ExecProvider
			if len(got.Args) > 1+maxAdded || len(got.Env) > 2+maxAdded {
				t.Errorf("there are %d arguments and %d variables", len(got.Args), len(got.Env))
			}
			if got.Command != "program" || got.Args[0] != "--mine" || got.Env[0].Name != "B" {
				t.Errorf("the program is %s %q with %d variables", got.Command, got.Args, len(got.Env))
			}
			if env == AppendEnvIfNotExists && (got.Env[0].Value != "mine" || got.Env[1].Value != "mine") {
				t.Errorf("a variable was replaced")
			}
			if m.Config.BearerToken != "" || m.Config.CAFile != "" || m.Config.Insecure {
				t.Errorf("the profile brought credentials, a file, or no checks along")
			}
		}
	})
}
