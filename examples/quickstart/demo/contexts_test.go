package demo

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const twoContexts = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret}}]
contexts:
- {name: green, context: {cluster: c, user: u}}
- {name: blue, context: {cluster: c, user: u}}
- {name: broken, context: {cluster: missing, user: u}}
`

func write(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhatIsWrongWithContextsIsSaid(t *testing.T) {
	const blue = "--contexts=blue"
	for name, test := range map[string]struct {
		content string
		args    string // besides --kubeconfig FILE
		want    string
	}{
		"one is not there":      {twoContexts, "--contexts=blue,red", `FILE has no context "red"; it has: blue, broken, green`},
		"none is named":         {twoContexts, "", "--kubeconfig needs --contexts; FILE has: blue, broken, green"},
		"its cluster is not":    {twoContexts, "--contexts=broken", `context "broken" of FILE: `},
		"it is no kubeconfig":   {"token: secret", blue, "FILE has no context"},
		"it does not parse":     {"users: secret", blue, "FILE is no kubeconfig"},
		"it is not YAML":        {"secret: [", blue, "FILE is no kubeconfig"},
		"the file is not there": {"", blue + " --kubeconfig=nowhere", "reading the kubeconfig: stat nowhere: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.content)
			o, err := parse(append([]string{"--kubeconfig=" + path}, strings.Fields(test.args)...), io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			_, err = o.configs()
			if err == nil {
				t.Fatal("no error")
			}
			message := strings.ReplaceAll(err.Error(), path, "FILE")
			if !strings.HasPrefix(message, test.want) {
				t.Errorf("the error is %q, want %q", message, test.want)
			}
			if strings.Contains(message, "secret") {
				t.Errorf("the error quotes the file: %s", message)
			}
		})
	}
}

func TestContextsBecomeConfigs(t *testing.T) {
	o, err := parse([]string{"--kubeconfig", write(t, twoContexts), "--contexts", " green, blue ,"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"green", "blue"}, o.contexts); diff != "" {
		t.Errorf("contexts (-want, +got):\n%s", diff)
	}
	configs, err := o.configs()
	if err != nil || len(configs) != 2 || configs["blue"].BearerToken != "secret" {
		t.Errorf("configs() = %v, %v, want those of green and blue", configs, err)
	}
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--contexts", "a"}, {"a"}, {"--unknown"}, {"--replicas=0"}, {"--replicas=2", "--kubeconfig=a"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("parse(%q) gives no error", args)
		}
	}
}
