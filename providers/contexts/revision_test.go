package contexts_test

import (
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

func TestRevisionChangesWithWhatTheContextUsesAlone(t *testing.T) {
	certificate, key := newCertificate(t)
	otherCertificate, otherKey := newCertificate(t)
	files := func() map[string][]byte {
		return map[string][]byte{
			"ca": certificate, "certificate": certificate, "key": key, "token": []byte("t"), "plugin": []byte("p"),
		}
	}
	// newConfig has all files that a kubeconfig can name.
	newConfig := func() *clientcmdapi.Config {
		config := with("m", "plugged", "other")
		config.Clusters["m"].CertificateAuthority = "ca"
		config.AuthInfos["m"] = &clientcmdapi.AuthInfo{TokenFile: "token", ClientCertificate: "certificate", ClientKey: "key"}
		config.AuthInfos["plugged"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: "./plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
		return config
	}
	type changed struct{ m, plugged bool }
	for name, tc := range map[string]struct {
		change func(config *clientcmdapi.Config, files map[string][]byte)
		want   changed
	}{
		"nothing":             {func(*clientcmdapi.Config, map[string][]byte) {}, changed{}},
		"another context":     {func(c *clientcmdapi.Config, _ map[string][]byte) { c.Contexts["new"] = c.Contexts["m"] }, changed{}},
		"another cluster":     {func(c *clientcmdapi.Config, _ map[string][]byte) { c.Clusters["other"].Server = "https://x" }, changed{}},
		"another user":        {func(c *clientcmdapi.Config, _ map[string][]byte) { c.AuthInfos["other"].Token = "x" }, changed{}},
		"the current context": {func(c *clientcmdapi.Config, _ map[string][]byte) { c.CurrentContext = "other" }, changed{}},
		"the namespace":       {func(c *clientcmdapi.Config, _ map[string][]byte) { c.Contexts["m"].Namespace = "x" }, changed{}},
		"the notes of a tool": {func(c *clientcmdapi.Config, _ map[string][]byte) {
			c.Clusters["m"].Extensions = map[string]runtime.Object{"minikube": &runtime.Unknown{Raw: []byte(`{"a":"b"}`)}}
		}, changed{}},
		"the names of the entries": {func(c *clientcmdapi.Config, _ map[string][]byte) {
			c.Contexts["m"].Cluster, c.Clusters["new"] = "new", c.Clusters["m"]
		}, changed{}},
		"the token in its file": {func(_ *clientcmdapi.Config, f map[string][]byte) { f["token"] = []byte("x") }, changed{}},
		"the program":           {func(_ *clientcmdapi.Config, f map[string][]byte) { f["plugin"] = []byte("x") }, changed{}},
		"the CA":                {func(_ *clientcmdapi.Config, f map[string][]byte) { f["ca"] = otherCertificate }, changed{m: true}},
		"the client certificate": {func(_ *clientcmdapi.Config, f map[string][]byte) {
			f["certificate"], f["key"] = otherCertificate, otherKey
		}, changed{m: true}},
		"the server":            {func(c *clientcmdapi.Config, _ map[string][]byte) { c.Clusters["m"].Server = "https://x" }, changed{m: true}},
		"the file of the token": {func(c *clientcmdapi.Config, _ map[string][]byte) { c.AuthInfos["m"].TokenFile = "ca" }, changed{m: true}},
		"the user":              {func(c *clientcmdapi.Config, _ map[string][]byte) { c.Contexts["m"].AuthInfo = "other" }, changed{m: true}},
		"an@argument":           {func(c *clientcmdapi.Config, _ map[string][]byte) { c.AuthInfos["plugged"].Exec.Args = []string{"x"} }, changed{plugged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			revisions := func(config *clientcmdapi.Config, files map[string][]byte) (m, plugged string) {
				for name, content := range files {
					putText(t, filepath.Join(dir, name), content)
				}
				put(t, filepath.Join(dir, "config"), config)
				r := start(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "config"), Contexts: []string{"m", "plugged"}, Interval: never})
				r.until(func() string {
					if len(r.now) != 2 {
						return "there are not two members"
					}
					return ""
				})
				return r.member("m").Revision, r.member("plugged").Revision
			}
			m, plugged := revisions(newConfig(), files())
			config, contents := newConfig(), files()
			tc.change(config, contents)
			newM, newPlugged := revisions(config, contents)
			if m == "" || plugged == "" || newM == "" || newPlugged == "" {
				t.Fatal("there are members without a revision")
			}
			if got := (changed{m != newM, plugged != newPlugged}); got != tc.want {
				t.Errorf("changed %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAChangedFileOfAContextIsNewsAndTheTokensIsNot(t *testing.T) {
	dir := t.TempDir()
	certificate, _ := newCertificate(t)
	otherCertificate, _ := newCertificate(t)
	config := with("m", "other")
	config.Clusters["m"].CertificateAuthority = "files/ca"
	config.AuthInfos["m"] = &clientcmdapi.AuthInfo{TokenFile: "files/token"}
	putText(t, filepath.Join(dir, "files/ca"), certificate)
	putText(t, filepath.Join(dir, "files/token"), []byte("t"))
	put(t, filepath.Join(dir, "config"), config)
	r := start(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "config"), Interval: never})
	r.waitFor("m@m", "other@other")

	putText(t, filepath.Join(dir, "files/token"), []byte("new"))
	config.Clusters["other"].Server = "https://else"
	put(t, filepath.Join(dir, "config"), config)
	r.waitFor("m@m", "other@else")
	putText(t, filepath.Join(dir, "files/ca"), otherCertificate)
	r.until(func() string {
		if string(r.now["m"].Config.CAData) != string(otherCertificate) {
			return "the member has not got the new CA"
		}
		return ""
	})
	want := []string{"set m@m", "set other@other", "set other@else", "set m@m"}
	if got := r.called(); !slices.Equal(got, want) {
		t.Errorf("the calls are %q, want %q", got, want)
	}
}
