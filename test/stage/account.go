package stage

import (
	"encoding/pem"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// Account is a service account of a control plane, with the rights that a manifest gives it. What is asked for in its name
// passes through a proxy that takes notes, so that rights show that nobody uses.
type Account struct {
	file    string
	granted []right
	config  *rest.Config

	mu    sync.Mutex // guards asked
	asked []right
}

// NewAccount applies a manifest to a control plane and returns its service account. There is one in it.
func NewAccount(t *testing.T, cp *mctest.ControlPlane, file string) *Account {
	t.Helper()
	Apply(t, cp, file)
	key, rights := granted(t, file)
	a := &Account{file: file, granted: rights}
	proxy := a.proxy(t, cp)
	a.config = &rest.Config{
		Host:        proxy.URL,
		BearerToken: token(t, cp, key),
		TLSClientConfig: rest.TLSClientConfig{
			CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}),
		},
	}
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

// NeedsAll waits until every right that the manifest gives was used, but for those that are used by chance.
func (a *Account) NeedsAll(t *testing.T) {
	t.Helper()
	for _, r := range a.granted {
		if !a.isByChance(r) {
			Eventually(t, fmt.Sprintf("a right that %s gives is used: %s", a.file, r), func() bool { return a.hasUsed(r) })
		}
	}
}

// isByChance reports whether it depends on timing, or on the version of the server, whether a right is used.
func (a *Account) isByChance(r right) bool {
	creates := r
	creates.verb = "create"
	switch r.verb {
	case "list":
		return true // servers stream lists by a watch, if they can
	case "patch":
		return r.resource == "events" // those that repeat
	case "get":
		return slices.Contains(a.granted, creates) // what it has created and its cache does not know yet
	}
	return false
}

// Asked returns what was asked for until now, each once, such as "list deployments.apps in default".
func (a *Account) Asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := map[string]bool{}
	for _, r := range a.asked {
		r.name = ""
		asked[r.String()] = true
	}
	return slices.Sorted(maps.Keys(asked))
}

func (a *Account) hasUsed(r right) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.asked, r.covers)
}

// proxy passes requests on to the control plane. When that cannot be reached, connections break.
func (a *Account) proxy(t *testing.T, cp *mctest.ControlPlane) *httptest.Server {
	t.Helper()
	config := cp.Config()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	quiet := stdlog.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			a.note(r.In)
		},
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      quiet,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	server.EnableHTTP2 = true
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func (a *Account) note(req *http.Request) {
	r, ok := rightOf(req)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.asked, r) {
		a.asked = append(a.asked, r)
	}
}

// right is what a request asks for, or what a rule allows: in all namespaces and for all names where these are empty.
type right struct{ verb, group, resource, namespace, name string }

func (r right) String() string {
	text := r.verb + " " + schema.GroupResource{Group: r.group, Resource: r.resource}.String()
	if r.name != "" {
		text += " " + r.name
	}
	if r.namespace != "" {
		text += " in " + r.namespace
	}
	return text
}

// covers reports whether a rule is for what a request asks for.
func (r right) covers(asked right) bool {
	return r.verb == asked.verb && r.group == asked.group && r.resource == asked.resource &&
		(r.namespace == "" || r.namespace == asked.namespace) && (r.name == "" || r.name == asked.name)
}

// holds asks the API server whether an account has the right.
func (r right) holds(t *testing.T, cp *mctest.ControlPlane, account client.ObjectKey) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace, Name: r.name,
		},
	}}
	if err := cp.Client().Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// rightOf returns what a request asks for. It is false for what everybody may ask for: what the server offers, and how it
// is.
func rightOf(req *http.Request) (right, bool) {
	var r right
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		r.group, parts = parts[1], parts[3:]
	default:
		return r, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		r.namespace, parts = parts[1], parts[2:]
	}
	r.resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.resource += "/" + parts[2]
	}
	r.verb = verbOf(req, r.name)
	return r, true
}

func verbOf(req *http.Request, name string) string {
	switch {
	case req.Method != http.MethodGet:
		return map[string]string{
			http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
		}[req.Method]
	case name != "":
		return "get"
	case req.URL.Query().Get("watch") != "":
		return "watch"
	}
	return "list"
}
