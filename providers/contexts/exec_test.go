package contexts_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/contexts"
)

// pluginEnv names the file from which a credential plugin reads the token. If it is set, this program is the plugin.
const pluginEnv = "FLEET_RUNTIME_TEST_TOKEN_FILE"

// plugin prints the token as a credential that is valid for a second, and notes each run beside the file. It returns
// the code to exit with. It creates no file: client-go runs it without a context, so it may outlive its test, whose
// folder must stay empty once it was emptied.
func plugin(tokenFile string) int {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	runs, err := os.OpenFile(tokenFile+".runs", os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = runs.WriteString("x")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Printf(`{"apiVersion": %q, "kind": "ExecCredential", "status": {"token": %q, "expirationTimestamp": %q}}`,
		clientauthenticationv1.SchemeGroupVersion, token, time.Now().Add(time.Second).UTC().Format(time.RFC3339))
	return 0
}

// plugged is a kubeconfig with the context "m", whose user gets its credentials from a plugin.
type plugged struct {
	path, tokenFile string
}

// newPlugged writes the kubeconfig, with the plugin beside it.
func newPlugged(t *testing.T, cp *mctest.ControlPlane, mode clientcmdapi.ExecInteractiveMode) plugged {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	must(t, os.Symlink(self, filepath.Join(dir, "plugin")))
	p := plugged{path: filepath.Join(dir, "config"), tokenFile: filepath.Join(dir, "token")}
	putText(t, p.tokenFile+".runs", nil)
	config := with("m")
	config.Clusters["m"] = &clientcmdapi.Cluster{Server: cp.Config().Host, CertificateAuthorityData: cp.Config().CAData}
	config.AuthInfos["m"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Command: "./plugin", InteractiveMode: mode,
		Env: []clientcmdapi.ExecEnvVar{{Name: pluginEnv, Value: p.tokenFile}},
	}}
	put(t, p.path, config)
	return p
}

// runs returns how often the plugin has run.
func (p plugged) runs(t *testing.T) int {
	t.Helper()
	runs, err := os.ReadFile(p.tokenFile + ".runs")
	must(t, err)
	return len(runs)
}

// newToken returns a token of a new service account.
func newToken(t *testing.T, cp *mctest.ControlPlane, namespace, name string) (string, *corev1.ServiceAccount) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	must(t, cp.Client().Create(t.Context(), account))
	request := &authenticationv1.TokenRequest{}
	must(t, cp.Client().SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token, account
}

// counted counts what is reported to a fleet.
type counted struct {
	*fleet.Fleet
	members fleet.Members
	sets    atomic.Int64
}

// counting is what a provider reports to whose reports are counted.
type counting struct {
	fleet.Members
	in *counted
}

func (c counting) Set(m fleet.Member) error {
	c.in.sets.Add(1)
	return c.Members.Set(m)
}

// connect runs the provider and a fleet until the test ends.
func connect(t *testing.T, p contexts.Provider) *counted {
	t.Helper()
	return connectWith(t, p, fleet.Options{})
}

func connectWith(t *testing.T, p contexts.Provider, options fleet.Options) *counted {
	t.Helper()
	options.Logger = logr.Discard()
	c := &counted{Fleet: fleet.New(options)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		done <- c.Run(ctx, nil, fleet.NewProvider("counted", func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
			c.members = members
			close(begun)
			return p.Run(ctx, local, counting{members, c})
		}))
	}()
	<-begun
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// becomes waits until the member "m" is in the state, and says so by a message with the given part.
func (c *counted) becomes(t *testing.T, state fleet.State, part string) {
	t.Helper()
	status := fleet.Status{}
	for range c.Changes(deadline(t)) {
		status, _ = c.Status("m")
		if status.State == state && strings.Contains(status.Message, part) {
			return
		}
	}
	t.Fatalf("the member is %s (%s): %s", status.State, status.Reason, status.Message)
}

// deadline returns a context that ends when a test has waited long enough.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// waitForUser waits until the server says that the fleet's requests to "m" come from the user.
func (c *counted) waitForUser(t *testing.T, want string) {
	t.Helper()
	var user string
	var why error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		user, why = c.user(ctx)
		return user == want, nil
	})
	if err != nil {
		t.Fatalf("the user is %q (%v), want %q", user, why, want)
	}
}

// user asks the member "m" who the fleet's client is to it.
func (c *counted) user(ctx context.Context) (string, error) {
	e, err := c.Engagement("m")
	if err != nil {
		return "", err
	}
	review := &authenticationv1.SelfSubjectReview{}
	err = e.Cluster().GetClient().Create(ctx, review)
	return review.Status.UserInfo.Username, err
}

func TestCredentialsOfPluginsAreRefreshed(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	ns := cp.CreateNamespace(t)
	p := newPlugged(t, cp, clientcmdapi.IfAvailableExecInteractiveMode)
	first, account := newToken(t, cp, ns, "first")
	putText(t, p.tokenFile, []byte(first))

	f := connect(t, contexts.Provider{Kubeconfig: p.path})
	f.becomes(t, fleet.Ready, "")
	f.waitForUser(t, "system:serviceaccount:"+ns+":first")
	runs := p.runs(t)
	second, _ := newToken(t, cp, ns, "second")
	putText(t, p.tokenFile, []byte(second))
	must(t, cp.Client().Delete(t.Context(), account)) // the first token is worth nothing now
	f.waitForUser(t, "system:serviceaccount:"+ns+":second")
	f.becomes(t, fleet.Ready, "")
	if p.runs(t) == runs {
		t.Error("the plugin has not run again")
	}
	if n := f.sets.Load(); n != 1 {
		t.Errorf("the member was reported %d times: credentials of a plugin are no news", n)
	}
}

// TestAPluginThatHangsHoldsNothingUp: client-go runs it without a context, so it goes on; the attempt to connect, and the
// removal of the member, do not wait for it.
func TestAPluginThatHangsHoldsNothingUp(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	p := newPlugged(t, cp, clientcmdapi.NeverExecInteractiveMode)
	must(t, syscall.Mkfifo(p.tokenFile, 0o600)) // nobody writes to it
	t.Cleanup(func() {
		reads, err := os.OpenFile(p.tokenFile, os.O_RDWR, 0)
		must(t, err)
		must(t, os.Remove(p.tokenFile))
		putText(t, p.tokenFile, []byte("for those that wait for their turn"))
		must(t, reads.Close())
	})
	f := connectWith(t, contexts.Provider{Kubeconfig: p.path}, fleet.Options{ConnectTimeout: time.Second})
	f.becomes(t, fleet.Connecting, "credential plugin")
	if status, _ := f.Status("m"); status.Reason != fleet.ReasonTimeout {
		t.Errorf("the reason is %s, want %s", status.Reason, fleet.ReasonTimeout)
	}
	select {
	case <-f.members.Remove("m"):
	case <-deadline(t).Done():
		t.Error("the member is not drained")
	}
}

func TestPluginsMayNotAskQuestions(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	token, _ := newToken(t, cp, cp.CreateNamespace(t), "account")
	for mode, tc := range map[clientcmdapi.ExecInteractiveMode]struct {
		state   fleet.State
		message string
	}{
		clientcmdapi.NeverExecInteractiveMode:       {fleet.Ready, ""},
		clientcmdapi.IfAvailableExecInteractiveMode: {fleet.Ready, ""},
		clientcmdapi.AlwaysExecInteractiveMode:      {fleet.Connecting, "exec plugin cannot support interactive mode: standard input is not a terminal"},
	} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPlugged(t, cp, mode)
			putText(t, p.tokenFile, []byte(token))
			connect(t, contexts.Provider{Kubeconfig: p.path}).becomes(t, tc.state, tc.message)
		})
	}
}

func TestAPluginThatFailsShowsInTheState(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	p := newPlugged(t, cp, clientcmdapi.NeverExecInteractiveMode)
	f := connect(t, contexts.Provider{Kubeconfig: p.path})
	f.becomes(t, fleet.Connecting, filepath.Join(filepath.Dir(p.path), "plugin")+" failed with exit code 1")
	token, _ := newToken(t, cp, cp.CreateNamespace(t), "account")
	putText(t, p.tokenFile, []byte(token))
	f.becomes(t, fleet.Ready, "")
}

// TestCertificatesInFilesAreTakenOverInPlace: the fleet stays engaged while the files become those of another user.
func TestCertificatesInFilesAreTakenOverInPlace(t *testing.T) {
	cp := pool.Start(t, mctest.Options{}).Local
	dir := t.TempDir()
	first, second := cp.AddUser(t, "first"), cp.AddUser(t, "second")
	config := with("m")
	config.Clusters["m"] = &clientcmdapi.Cluster{Server: first.Host, CertificateAuthority: "ca"}
	config.AuthInfos["m"] = &clientcmdapi.AuthInfo{ClientCertificate: "pair/certificate", ClientKey: "pair/key"}
	putText(t, filepath.Join(dir, "ca"), first.CAData)
	putText(t, filepath.Join(dir, "pair/certificate"), first.CertData)
	putText(t, filepath.Join(dir, "pair/key"), first.KeyData)
	put(t, filepath.Join(dir, "config"), config)
	f := connect(t, contexts.Provider{Kubeconfig: filepath.Join(dir, "config")})
	f.becomes(t, fleet.Ready, "")
	f.waitForUser(t, "first")
	before, err := f.Engagement("m")
	must(t, err)

	putText(t, filepath.Join(dir, "pair/certificate"), second.CertData)
	putText(t, filepath.Join(dir, "pair/key"), second.KeyData)
	f.waitForUser(t, "second")
	if after, err := f.Engagement("m"); err != nil || after != before {
		t.Errorf("the member was engaged anew (%v)", err)
	}
	if bytes.Equal(first.CertData, second.CertData) {
		t.Fatal("the users have the same certificate")
	}
}
