package contexts_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// secret stands in all tokens, and must not show up in an error or in the log.
const secret = "S3CR3T"

// with returns a kubeconfig that has these contexts, each with a cluster and a user of its name. The cluster of the
// context NAME is at https://NAME.
func with(names ...string) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	for _, name := range names {
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + name}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: secret + name}
	}
	return config
}

func text(t *testing.T, config *clientcmdapi.Config) []byte {
	t.Helper()
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// at returns a kubeconfig with one context, whose cluster is at the given host.
func at(name, host string) *clientcmdapi.Config {
	config := with(name)
	config.Clusters[name].Server = "https://" + host
	return config
}

// put writes a kubeconfig to a file in one step, and makes the folders on the way.
func put(t *testing.T, path string, config *clientcmdapi.Config) {
	t.Helper()
	putText(t, path, text(t, config))
}

func putText(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	// Not in the folder: what comes and goes there is looked at.
	temporary := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(temporary, content, 0o600))
	must(t, os.Rename(temporary, path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newCertificate returns a self-signed certificate and its key, as PEM.
func newCertificate(t *testing.T) (certificate, key []byte) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	must(t, err)
	return certificate, key
}
