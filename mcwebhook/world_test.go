package mcwebhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

var pool mctest.Pool

func TestMain(m *testing.M) { os.Exit(pool.Run(m)) }

// manifests are what controller-gen writes for the webhooks of the tests, for labelled namespaces alone.
const manifests = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: mutating-webhook-configuration
webhooks:
- admissionReviewVersions: [v1]
  clientConfig:
    service: {name: webhook-service, namespace: system, path: /mutate--v1-configmap}
  failurePolicy: POLICY
  name: mconfigmap.kb.io
  namespaceSelector: {matchLabels: {admission: asked}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  sideEffects: None
  timeoutSeconds: 30
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: validating-webhook-configuration
webhooks:
- admissionReviewVersions: [v1]
  clientConfig:
    service: {name: webhook-service, namespace: system, path: /validate--v1-configmap}
  failurePolicy: POLICY
  name: vconfigmap.kb.io
  namespaceSelector: {matchLabels: {admission: asked}}
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  sideEffects: None
  timeoutSeconds: 30
`

// configMaps validates ConfigMaps by what their own cluster forbids, and adds the name of that.
type configMaps struct{}

func (configMaps) Default(ctx context.Context, cm *corev1.ConfigMap) error {
	name, _ := mcreconcile.ClusterNameFrom(ctx)
	if cm.Data == nil {
		cm.Data = map[string]string{}
	}
	cm.Data["cluster"] = string(name)
	return nil
}

func (configMaps) ValidateCreate(ctx context.Context, cm *corev1.ConfigMap) (admission.Warnings, error) {
	policy := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "policy"}
	if err := mcreconcile.ClusterFrom(ctx).GetClient().Get(ctx, key, policy); err != nil {
		return nil, err
	}
	if cm.Data["value"] == policy.Data["forbidden"] {
		return nil, errors.New("forbidden by " + policy.Data["forbidden"])
	}
	return nil, nil
}

func (c configMaps) ValidateUpdate(ctx context.Context, _, cm *corev1.ConfigMap) (admission.Warnings, error) {
	return c.ValidateCreate(ctx, cm)
}

func (configMaps) ValidateDelete(context.Context, *corev1.ConfigMap) (admission.Warnings, error) {
	return nil, nil
}

// setupConfigMapWebhook is as kubebuilder scaffolds it.
func setupConfigMapWebhook(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &corev1.ConfigMap{}).WithValidator(configMaps{}).WithDefaulter(configMaps{}).Complete()
}

// world is a local cluster and members, in which a namespace is asked about.
type world struct {
	*mctest.Fleet
	t         *testing.T
	namespace string // of the Secret
	// register registers the webhooks of programs. Default: setupConfigMapWebhook.
	register func(ctrl.Manager) error
	// hub is how programs reach the local cluster. Default: with the rights of docs/admission.md and no others, or as an administrator if
	// they share members.
	hub *rest.Config
	// wrapHub is on the way of programs to the local cluster. Default: nothing.
	wrapHub func(http.RoundTripper) http.RoundTripper
}

const asked = "asked"

func newWorld(t *testing.T, members int) *world {
	t.Helper()
	w := &world{Fleet: pool.Start(t, mctest.Options{Clusters: members}), t: t, register: setupConfigMapWebhook}
	w.namespace = w.Local.CreateNamespace(t)
	for _, cp := range w.Members {
		w.create(cp, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: asked, Labels: map[string]string{"admission": "asked"}}})
		w.create(cp, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "policy"}, Data: map[string]string{"forbidden": cp.Name},
		})
	}
	return w
}

func (w *world) create(cp *mctest.ControlPlane, obj client.Object) {
	w.t.Helper()
	if err := cp.Client().Create(w.t.Context(), obj); err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits until what holds. The time is there to end a test that fails.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.t.Fatalf("still not so: %s", what)
		}
	}
}

// program is one replica.
type program struct {
	mcmanager.Manager
	fleettest.Provider

	world *world
	opts  Options
	hooks *Manager
	end   func()
	asked sync.Map // the paths that were asked
}

// quiet returns a logger, and looks at the end whether it was told keys.
func (p *program) quiet() logr.Logger {
	var mu sync.Mutex
	var lines strings.Builder
	p.world.t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range p.hooks.keeper.store.keys() {
			for _, status := range p.GetFleet().List(nil) {
				if proof := (caller{name: status.Name, identity: status.Identity}).proof(key); strings.Contains(lines.String(), proof) {
					p.world.t.Errorf("the log shows the key of %s", status.Name)
				}
			}
		}
		if p.world.t.Failed() {
			p.world.t.Log(lines.String())
		}
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{})
}

func (w *world) hubConfig(sharded bool) *rest.Config {
	switch {
	case w.hub != nil:
		return rest.CopyConfig(w.hub)
	case sharded:
		return w.Local.Config()
	}
	return w.Local.AddUser(w.t, "program",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"test-webhooks"},
			Verbs: []string{"get", "list", "watch", "update"},
		})
}

// newProgram returns a replica that serves at an address of its own, and has its members called as the control planes are.
func (w *world) newProgram(policy string, change func(*Options), options ...mcmanager.FleetOption) *program {
	w.t.Helper()
	p := &program{world: w}
	host, port, _ := net.SplitHostPort(mctest.Address(w.t))
	number, err := strconv.Atoi(port)
	if err != nil {
		w.t.Fatal(err)
	}
	configurations, err := Parse([]byte(strings.ReplaceAll(manifests, "POLICY", policy)))
	if err != nil {
		w.t.Fatal(err)
	}
	hub := w.hubConfig(len(options) > 0)
	hub.Wrap(w.wrapHub)
	p.Manager, err = mcmanager.New(hub, &p.Provider, mcmanager.Options{
		Scheme: scheme.Scheme, Logger: p.quiet(), Metrics: metricsserver.Options{BindAddress: "0"},
	}, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	p.opts = Options{
		Name: "test", URL: "https://" + net.JoinHostPort(host, port), Configurations: configurations, AllowFailForCoreGroups: true,
		Namespace: w.namespace, Server: webhook.Options{Host: host, Port: number},
	}
	if change != nil {
		change(&p.opts)
	}
	if p.hooks, err = New(p.Manager, p.opts); err != nil {
		w.t.Fatal(err)
	}
	if err := w.register(p.hooks); err != nil {
		w.t.Fatal(err)
	}
	p.record()
	for _, cp := range w.Members {
		p.join(fleet.Member{Name: fleet.ClusterName(cp.Name), Config: cp.Config()})
	}
	return p
}

// record notes which paths are asked.
func (p *program) record() {
	r := p.hooks.registry
	for path, hook := range r.handlers {
		r.handlers[path] = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			p.asked.Store(req.URL.Path, true)
			hook.ServeHTTP(w, req)
		})
	}
}

func (p *program) join(m fleet.Member) {
	p.world.t.Helper()
	if err := p.Set(m); err != nil {
		p.world.t.Fatal(err)
	}
}

func (p *program) start() *program {
	t := p.world.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	p.end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	t.Cleanup(p.end)
	return p
}

// write creates a ConfigMap that is asked about.
func (w *world) write(cp *mctest.ControlPlane, value string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: asked, GenerateName: "c-"}, Data: map[string]string{"value": value}}
	return cm, cp.Client().Create(w.t.Context(), cm)
}

// isAsked waits until the webhooks are asked about what is written: both, of which one is installed before the other.
func (w *world) isAsked(cp *mctest.ControlPlane) {
	w.t.Helper()
	w.eventually("webhooks are asked about what is written in "+cp.Name, func() bool {
		_, err := w.write(cp, cp.Name)
		if err == nil || !strings.Contains(err.Error(), "forbidden by "+cp.Name) {
			return false
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: asked, GenerateName: "c-"}, Data: map[string]string{"value": "allowed"}}
		return cp.Client().Create(w.t.Context(), cm, client.DryRunAll) == nil && cm.Data["cluster"] != ""
	})
}

// path returns the path that a member was given.
func (p *program) path(name fleet.ClusterName, hook string) string {
	p.world.t.Helper()
	e, err := p.GetFleet().Engagement(name)
	if err != nil {
		p.world.t.Fatal(err)
	}
	return caller{name, e.Identity(), hook}.path(p.hooks.keeper.store.now.Load().key)
}

// call sends a request as an API server would, and returns all of the answer that a caller can see, but for the time.
func (p *program) call(path string) (code int, answer string) {
	p.world.t.Helper()
	code, answer = p.send(path, strings.NewReader("{}"))
	if code == 0 {
		p.world.t.Fatal(answer)
	}
	return code, answer
}

// send returns the answer to a request, but for the time in it. Without one, the code is 0.
func (p *program) send(path string, body io.Reader) (code int, answer string) {
	t := p.world.t
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(p.hooks.keeper.store.now.Load().bundle())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.opts.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err.Error()
	}
	resp.Header.Del("Date")
	return resp.StatusCode, fmt.Sprint(resp.Status, resp.Header, string(text))
}
