package stage

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Account is an account of a control plane whose rights are recorded. What it asks for passes through a proxy, so that watches can
// be held up.
type Account struct {
	file     string
	recorded *mctest.Account
	config   *rest.Config

	mu   sync.Mutex               // guards what follows
	held map[string]chan struct{} // by resource, closed when its events are released
}

// NewAccount applies a manifest to a control plane and returns its service account. There is one in it.
func NewAccount(t *testing.T, cp *mctest.ControlPlane, r mctest.Rights) *Account {
	t.Helper()
	a := &Account{file: r.File, recorded: cp.RecordRights(t, r), held: map[string]chan struct{}{}}
	a.config = configFor(a.proxy(t, cp))
	a.config.BearerToken = a.recorded.Config().BearerToken
	return a
}

// Kubeconfig returns the kubeconfig of the account.
func (a *Account) Kubeconfig(t *testing.T) []byte {
	t.Helper()
	content, err := mctest.Kubeconfig(a.config)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// File returns the path of a file with the kubeconfig, which has one context, "mctest".
func (a *Account) File(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, a.Kubeconfig(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// NeedsAll waits until every right that the manifest gives was used, so that none is told to be too much when the tests have ended.
func (a *Account) NeedsAll(t *testing.T) {
	t.Helper()
	var unused []string
	if !await(t, patience, func() bool { unused = a.recorded.Unused(t); return len(unused) == 0 }) {
		t.Errorf("%s gives more than was needed within %s:\n%s", a.file, patience, strings.Join(unused, "\n"))
	}
}

// Asked returns what was asked for until now, each once, such as "list deployments.apps in default".
func (a *Account) Asked(t *testing.T) []string {
	t.Helper()
	return a.recorded.Asked(t)
}

// HoldEvents keeps from the account, from now until it is released, what watches of a resource such as "jobs" would tell: its
// caches do not know what happens meanwhile.
func (a *Account) HoldEvents(resource string) (release func()) {
	released := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[resource] = released
	return func() { close(released) }
}
