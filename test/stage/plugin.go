package stage

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Plugin is a credential plugin, a program that client-go starts for each request, as its credentials have always expired.
// client-go does not end it; it ends with the process that has started it.
type Plugin struct {
	t    *testing.T
	hang string // a file: while it is there, the program gives no answer
	exec *clientcmdapi.ExecConfig
}

// NewPlugin returns a plugin that provides the client certificate of a config.
func NewPlugin(t *testing.T, cfg *rest.Config) *Plugin {
	t.Helper()
	folder := t.TempDir()
	answer, err := json.Marshal(clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status: &clientauthenticationv1.ExecCredentialStatus{
			ClientCertificateData: string(cfg.CertData), ClientKeyData: string(cfg.KeyData),
			ExpirationTimestamp: new(metav1.NewTime(time.Now().Add(-time.Minute))),
		},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "answer"), answer, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{t: t, hang: filepath.Join(folder, "hang"), exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Command: "sh", Args: []string{"-c", `cd "$0" && while [ -e hang ] && kill -0 $PPID; do sleep 0.1; done && cat answer`, folder},
	}}
	t.Cleanup(p.Answer)
	return p
}

// Config returns a config whose credentials are the plugin's.
func (p *Plugin) Config(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.CertData, cfg.KeyData, cfg.ExecProvider = nil, nil, p.exec.DeepCopy()
	return cfg
}

// Hang makes the program give no answer from now on.
func (p *Plugin) Hang() {
	p.t.Helper()
	if err := os.WriteFile(p.hang, nil, 0o600); err != nil {
		p.t.Error(err)
	}
}

// Answer makes it answer again.
func (p *Plugin) Answer() {
	p.t.Helper()
	if err := os.Remove(p.hang); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Error(err)
	}
}
