package contexts_test

import (
	"path/filepath"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

func TestContextsMayDoWhatKubectlLetsThem(t *testing.T) {
	dir := t.TempDir()
	putText(t, filepath.Join(dir, "token"), []byte("t"))
	config := with("insecure", "exec", "plugin", "file", "nobody")
	config.Clusters["insecure"].InsecureSkipTLSVerify = true
	config.AuthInfos["exec"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		Command: "x", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	config.AuthInfos["plugin"] = &clientcmdapi.AuthInfo{AuthProvider: &clientcmdapi.AuthProviderConfig{Name: "oidc"}}
	config.AuthInfos["file"] = &clientcmdapi.AuthInfo{TokenFile: "token"}
	config.Contexts["nobody"].AuthInfo = ""
	config.Clusters["http"], config.Contexts["http"] = &clientcmdapi.Cluster{Server: "http://x"}, &clientcmdapi.Context{Cluster: "http"}
	put(t, filepath.Join(dir, "config"), config)
	r := start(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "config")})
	r.waitFor("insecure@insecure", "exec@exec", "plugin@plugin", "file@file", "nobody@nobody", "http@http://x")
}
