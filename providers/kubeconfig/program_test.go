package kubeconfig_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// aws is a program as an operator would list it.
var aws = kubeconfig.Program{
	Command: "aws",
	Args:    []string{"eks", "get-token", "--cluster-name", "fleet-*", "--role-arn=arn:aws:iam::1:role/fleet-*", "*"},
	Env:     map[string]string{"AWS_PROFILE": "fleet", "AWS_REGION": "eu-*"},
	Hosts:   []string{"*.eks.amazonaws.com", "10.0.0.1"},
}

// TestAKubeconfigRunsAProgramOnlyInTheWaysThatAreListed has what a stranger might try, and what is meant.
func TestAKubeconfigRunsAProgramOnlyInTheWaysThatAreListed(t *testing.T) {
	const role = "--role-arn=arn:aws:iam::1:role/fleet-reader"
	args := func(args ...string) func(*clientcmdapi.ExecConfig, *clientcmdapi.Cluster) {
		return func(e *clientcmdapi.ExecConfig, _ *clientcmdapi.Cluster) { e.Args = args }
	}
	env := func(pairs ...string) func(*clientcmdapi.ExecConfig, *clientcmdapi.Cluster) {
		return func(e *clientcmdapi.ExecConfig, _ *clientcmdapi.Cluster) {
			for i := 0; i < len(pairs); i += 2 {
				e.Env = append(e.Env, clientcmdapi.ExecEnvVar{Name: pairs[i], Value: pairs[i+1]})
			}
		}
	}
	command := func(name string) func(*clientcmdapi.ExecConfig, *clientcmdapi.Cluster) {
		return func(e *clientcmdapi.ExecConfig, _ *clientcmdapi.Cluster) { e.Command = name }
	}
	server := func(url string) func(*clientcmdapi.ExecConfig, *clientcmdapi.Cluster) {
		return func(_ *clientcmdapi.ExecConfig, c *clientcmdapi.Cluster) { c.Server = url }
	}
	const byCommand, byArgs, byEnv, byServer = "its command is not", "its args are not", "its env has", "the server is not"
	const twice = "its env gives a variable twice"
	for name, tc := range map[string]struct {
		change func(*clientcmdapi.ExecConfig, *clientcmdapi.Cluster)
		want   string // what the error says, or nothing if it is allowed
	}{
		"as it is meant":                     {func(*clientcmdapi.ExecConfig, *clientcmdapi.Cluster) {}, ""},
		"listed variables":                   {env("AWS_REGION", "eu-west-1", "AWS_PROFILE", "fleet"), ""},
		"a shell":                            {command("/bin/sh"), byCommand},
		"the same program elsewhere":         {command("/tmp/aws"), byCommand},
		"beside the manager":                 {command("./aws"), byCommand},
		"by a way around":                    {command("bin/../aws"), byCommand},
		"a longer name":                      {command("aws2"), byCommand},
		"a shorter name":                     {command("aw"), byCommand},
		"in another case":                    {command("AWS"), byCommand},
		"the pattern for a command":          {command("*"), byCommand},
		"another subcommand":                 {args("s3", "get-token", "--cluster-name", "fleet-a", role, "x"), byArgs},
		"no arguments":                       {args(), byArgs},
		"one less":                           {args("eks", "get-token", "--cluster-name", "fleet-a", role), byArgs},
		"one more":                           {args("eks", "get-token", "--cluster-name", "fleet-a", role, "x", "--debug"), byArgs},
		"an option for a value":              {args("eks", "get-token", "--cluster-name", "fleet-a", role, "--endpoint-url=https://evil"), byArgs},
		"an option for the listed one":       {args("eks", "get-token", "--cluster", "fleet-a", role, "x"), byArgs},
		"the cluster of another":             {args("eks", "get-token", "--cluster-name", "other-fleet-a", role, "x"), byArgs},
		"the role of another":                {args("eks", "get-token", "--cluster-name", "fleet-a", "--role-arn=arn:aws:iam::1:role/admin", "x"), byArgs},
		"the account of another":             {args("eks", "get-token", "--cluster-name", "fleet-a", "--role-arn=arn:aws:iam::2:role/fleet-a", "x"), byArgs},
		"a variable for the loader":          {env("LD_PRELOAD", "/tmp/evil.so"), byEnv},
		"a variable for what is run":         {env("PATH", "/tmp"), byEnv},
		"a variable for what client-go says": {env("KUBERNETES_EXEC_INFO", "{}"), byEnv},
		"a listed one and another":           {env("AWS_PROFILE", "fleet", "LD_PRELOAD", "/tmp/evil.so"), byEnv},
		"a listed one twice":                 {env("AWS_PROFILE", "admin", "AWS_PROFILE", "fleet"), twice},
		"twice the same":                     {env("AWS_PROFILE", "fleet", "AWS_PROFILE", "fleet"), twice},
		"another value":                      {env("AWS_PROFILE", "admin"), byEnv},
		"a listed one in another case":       {env("aws_profile", "fleet"), byEnv},
		"two in one":                         {env("AWS_PROFILE=fleet\x00LD_PRELOAD", "x"), byEnv},
		"another server":                     {server("https://evil.example.com"), byServer},
		"a path like a server":               {server("https://evil.example.com/x.eks.amazonaws.com"), byServer},
		"a question like a server":           {server("https://evil.example.com?.eks.amazonaws.com"), byServer},
		"the end of another server":          {server("https://eks.amazonaws.com.evil.example.com"), byServer},
		"a server without what is before":    {server("https://eks.amazonaws.com"), byServer},
		"an address with a zone like one":    {server("https://[2001:db8::1%25.eks.amazonaws.com]"), byServer},
		"a listed server":                    {server("https://X.EKS.amazonaws.com:443/base"), ""},
		"a listed address":                   {server("https://10.0.0.1:6443"), ""},
		"a proxy that could read it": {
			func(_ *clientcmdapi.ExecConfig, c *clientcmdapi.Cluster) { c.ProxyURL = "http://evil.example.com" },
			"there must be no proxy",
		},
		"what the extension says": {
			func(e *clientcmdapi.ExecConfig, _ *clientcmdapi.Cluster) { e.ProvideClusterInfo = true },
			"its provideClusterInfo is not listed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig()
			exec := &clientcmdapi.ExecConfig{
				Command: "aws", Args: []string{"eks", "get-token", "--cluster-name", "fleet-a", role, "x"},
				APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
			*config.Clusters["east"] = clientcmdapi.Cluster{Server: "https://x.eks.amazonaws.com"}
			*config.AuthInfos["admin"] = clientcmdapi.AuthInfo{Exec: exec}
			tc.change(exec, config.Clusters["east"])
			text := write(t, config)

			m := kubeconfig.Member("m", text, "", kubeconfig.Allow{Exec: []kubeconfig.Program{{Command: "other"}, aws}})
			if tc.want == "" {
				if m.Err != nil {
					t.Error(m.Err)
				}
				return
			}
			wantError(t, m.Err, kubeconfig.ReasonRefused, `exec of user "admin" needs the provider's option Allow.Exec: `+tc.want)
			m = kubeconfig.Member("m", text, "", kubeconfig.Allow{Exec: []kubeconfig.Program{kubeconfig.Exactly(*exec)}})
			if tc.want == twice {
				wantError(t, m.Err, kubeconfig.ReasonRefused, twice)
			} else if m.Err != nil {
				t.Errorf("refused although exactly this is allowed: %v", m.Err)
			}
		})
	}
}

// TestTenantsOfTheExampleAreKeptApart holds for the example of the page, which others copy.
func TestTenantsOfTheExampleAreKeptApart(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		env     string
		allowed bool
	}{
		"its own cluster":           {[]string{"team_prod", "--region", "eu-west-1", "--profile", "team"}, "", true},
		"one of a longer name":      {[]string{"team-b_prod", "--region", "eu-west-1", "--profile", "team"}, "", false},
		"the profile of another":    {[]string{"team_prod", "--region", "eu-west-1", "--profile", "team-b"}, "", false},
		"the manager's own profile": {[]string{"team_prod", "--region", "eu-west-1"}, "", false},
		"a profile by the variable": {[]string{"team_prod", "--region", "eu-west-1", "--profile", "team"}, "AWS_PROFILE", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := newKubeconfig()
			exec := &clientcmdapi.ExecConfig{
				Command: "aws", Args: append([]string{"eks", "get-token", "--cluster-name"}, tc.args...),
				APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
			if tc.env != "" {
				exec.Env = []clientcmdapi.ExecEnvVar{{Name: tc.env, Value: "team-b"}}
			}
			*config.Clusters["east"] = clientcmdapi.Cluster{Server: "https://x.eks.amazonaws.com"}
			*config.AuthInfos["admin"] = clientcmdapi.AuthInfo{Exec: exec}
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "prod", Labels: map[string]string{kubeconfig.Label: "true"}},
				Data:       map[string][]byte{kubeconfig.DefaultKey: write(t, config)},
			}
			members, err := forTenants().Members(secret, kubeconfig.Reading{})
			if err != nil || len(members) != 1 || (members[0].Err == nil) != tc.allowed {
				t.Errorf("got %v (%v), want it allowed: %t", members, err, tc.allowed)
			}
		})
	}
}

func TestOneOfSeveralWaysToRunAProgramIsEnough(t *testing.T) {
	config := newKubeconfig()
	*config.AuthInfos["admin"] = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "aws", Args: []string{"a"}, APIVersion: "client.authentication.k8s.io/v1", ProvideClusterInfo: true,
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	text := write(t, config)
	plain, withArgument := kubeconfig.Program{Command: "aws"}, kubeconfig.Program{Command: "aws", Args: []string{"*"}, ClusterInfo: true}
	for _, listed := range [][]kubeconfig.Program{{plain, withArgument}, {withArgument, plain}} {
		if m := kubeconfig.Member("m", text, "", kubeconfig.Allow{Exec: listed}); m.Err != nil {
			t.Error(m.Err)
		}
	}
	m := kubeconfig.Member("m", text, "", kubeconfig.Allow{Exec: []kubeconfig.Program{plain, {Command: "aws", ClusterInfo: true}}})
	wantError(t, m.Err, kubeconfig.ReasonRefused, "its args are not those that are listed")
}

func TestPatternsMatchWholeTexts(t *testing.T) {
	for _, tc := range []struct {
		pattern, text string
		want          bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a", "ba", false},
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "a/b c\n", true},
		{"*", "-a", false},
		{"*a", "-a", false},
		{"-*", "-a", true},
		{"--", "--", true},
		{"a*", "a", true},
		{"a*", "ba", false},
		{"*a", "ba", true},
		{"*a", "ab", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*b*c", "axbxc", true},
		{"a*b*c", "axc", false},
		{"a*b*b", "ab", false},
		{"a*b*b", "abb", true},
		{"a**b", "ab", true},
		{"a?", "ab", false},
		{"[a]", "a", false},
		{"[a]", "[a]", true},
		{`\*`, "*", false},
		{"*b*", "abc", true},
	} {
		config := newKubeconfig()
		*config.AuthInfos["admin"] = clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: "x", Args: []string{tc.text}, APIVersion: "client.authentication.k8s.io/v1",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
		allow := kubeconfig.Allow{Exec: []kubeconfig.Program{{Command: "x", Args: []string{tc.pattern}}}}
		if m := kubeconfig.Member("m", write(t, config), "", allow); (m.Err == nil) != tc.want {
			t.Errorf("the pattern %q and the text %q: %v, want a match: %t", tc.pattern, tc.text, m.Err, tc.want)
		}
	}
}
