package mcwebhook

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

// conversionPath is where controller-runtime's builder registers conversion.
const conversionPath = "/convert"

// registry has the webhooks that were registered. To those that register it is a webhook server, and another one serves them.
type registry struct {
	mgr      mcmanager.Manager
	listener webhook.Server
	mux      *http.ServeMux // shows what is registered, and serves nothing

	mu       sync.RWMutex // guards handlers
	handlers map[string]http.Handler
}

var _ webhook.Server = (*registry)(nil)

func newRegistry(mgr mcmanager.Manager, listener webhook.Server) *registry {
	return &registry{mgr: mgr, listener: listener, mux: http.NewServeMux(), handlers: map[string]http.Handler{}}
}

// Register implements webhook.Server. Like others, it panics if the path has a webhook.
func (r *registry) Register(path string, hook http.Handler) {
	r.mux.Handle(path, hook)
	if path == conversionPath {
		registerOnce(r.mgr.GetWebhookServer(), path, hook)
		return
	}
	if reviewed, ok := hook.(*admission.Webhook); ok {
		measured, err := admission.StandaloneWebhook(reviewed, admission.StandaloneOptions{
			Logger: r.mgr.GetLogger().WithName("webhooks").WithValues("path", path), MetricsPath: path,
		})
		if err != nil {
			panic(fmt.Errorf("registering the webhook at %s: %w", path, err))
		}
		hook = measured
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers[path] = hook
}

// registerOnce registers a webhook, unless there is one: kinds of the local cluster may have registered conversion, which is the same
// for all kinds.
func registerOnce(in webhook.Server, path string, hook http.Handler) {
	if mux := in.WebhookMux(); mux != nil {
		if _, at := mux.Handler(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}}); at == path {
			return
		}
	}
	in.Register(path, hook)
}

// handler returns what is registered at a path, nil if nothing is.
func (r *registry) handler(path string) http.Handler {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.handlers[path]
}

// paths returns where something is registered.
func (r *registry) paths() map[string]bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	registered := make(map[string]bool, len(r.handlers))
	for path := range r.handlers {
		registered[path] = true
	}
	return registered
}

// NeedLeaderElection implements webhook.Server.
func (*registry) NeedLeaderElection() bool { return false }

// Start implements webhook.Server. The manager starts the server that serves.
func (*registry) Start(context.Context) error { return nil }

// StartedChecker implements webhook.Server.
func (r *registry) StartedChecker() healthz.Checker { return r.listener.StartedChecker() }

// WebhookMux implements webhook.Server.
func (r *registry) WebhookMux() *http.ServeMux { return r.mux }
