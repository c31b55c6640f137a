package stage

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Account is a service account of a control plane, with the rights that a manifest gives it. What is asked for in its name
// passes through a proxy that takes notes, so that rights show that nobody uses.
//
// The proxy does not stream the first list of each watch, as API servers before 1.34 do not: lists are then asked for too.
type Account struct {
	file    string
	granted []right
	config  *rest.Config

	mu      sync.Mutex // guards what follows
	asked   []right
	refused []right
	held    map[string]chan struct{} // by resource, closed when its events are released
}

// NewAccount applies a manifest to a control plane and returns its service account. There is one in it.
func NewAccount(t *testing.T, cp *mctest.ControlPlane, file string) *Account {
	t.Helper()
	Apply(t, cp, file)
	key, rights := granted(t, file)
	a := &Account{file: file, granted: rights, held: map[string]chan struct{}{}}
	a.config = configFor(a.proxy(t, cp))
	a.config.BearerToken = token(t, cp, key)
	for _, r := range rights { // the API server learns of them by a watch
		Eventually(t, "the rights of "+file+" hold", func() bool { return r.holds(t, cp, key) })
	}
	return a
}

func token(t *testing.T, cp *mctest.ControlPlane, account client.ObjectKey) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	subject := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := cp.Client().SubResource("token").Create(t.Context(), subject, request); err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
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

// NeedsAll waits until every right that the manifest gives was used: in the namespace where it is given, or, if it is given
// in the whole cluster, not in one namespace alone. Whether events that repeat are patched is left to chance.
func (a *Account) NeedsAll(t *testing.T) {
	t.Helper()
	var unneeded []string
	if !await(t, patience, func() bool { unneeded = a.unneeded(); return len(unneeded) == 0 }) {
		t.Errorf("%s gives more than was needed within %s:\n%s", a.file, patience, strings.Join(unneeded, "\n"))
	}
}

func (a *Account) unneeded() (texts []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.granted {
		if text := r.tooMuch(a.asked); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// Asked returns what was asked for until now, each once, such as "list deployments.apps in default".
func (a *Account) Asked() []string { return a.texts(&a.asked) }

// LacksNone checks that no request was refused for want of a right, but those that the test has made itself, named as
// [Account.Asked] does.
func (a *Account) LacksNone(t *testing.T, but ...string) {
	t.Helper()
	refused := slices.DeleteFunc(a.texts(&a.refused), func(text string) bool { return slices.Contains(but, text) })
	if len(refused) > 0 {
		t.Errorf("%s does not give what was asked for:\n%s", a.file, strings.Join(refused, "\n"))
	}
}

func (a *Account) texts(of *[]right) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	texts := map[string]bool{}
	for _, r := range *of {
		r.name = ""
		texts[r.String()] = true
	}
	return slices.Sorted(maps.Keys(texts))
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
