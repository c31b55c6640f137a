package mcwebhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
)

// DefaultPort is the port of [Options.Server] if that names none. It is not the one of webhooks for the local cluster, since a
// program may have both.
const DefaultPort = 9444

// Options say what members ask, and where. Name and URL are required.
type Options struct {
	// Name is that of the configurations in members, and begins that of the Secret in the local cluster. Programs that work on
	// the same members have different ones.
	Name string

	// URL is where the API servers of all members reach this program: https, a host, and perhaps a port. It may be that of a load
	// balancer which passes TLS on.
	URL string

	// Configurations are ValidatingWebhookConfigurations and MutatingWebhookConfigurations, such as [Parse] makes of what
	// controller-gen has written. The path of the service in a clientConfig names the webhook that is registered there. Members
	// are given those that are registered, with this program's URL.
	//
	// Unlike in Kubernetes, a failurePolicy that is not set is Ignore, and a timeout is 5 seconds. Objects in kube-system are excluded,
	// unless a namespaceSelector says something of kubernetes.io/metadata.name.
	Configurations []client.Object

	// AllowFailForCoreGroups allows the failurePolicy Fail for kinds of Kubernetes itself. While this program cannot be reached, nobody
	// can write those in any member, which may be what is needed to reach it again.
	AllowFailForCoreGroups bool

	// Namespace of the local cluster has the Secret with the keys. Default: the pod's.
	Namespace string

	// Server is how the webhooks are served. With a CertDir, its certificate is served, and the file ca.crt there, if there is one, is
	// what members trust; whoever renews it keeps old and new together in ca.crt until all members have both. Without one, the program
	// has a certificate authority of its own. WebhookMux, ClientCAName and GetCertificate must not be set.
	Server webhook.Options

	// ClientCAs, if set, are those of which each caller must show a certificate. API servers show what their
	// AdmissionConfiguration says.
	ClientCAs *x509.CertPool
}

// Manager is a manager whose webhook server serves all members. It is given to what registers webhooks, and to nothing else
// than that. All other methods are those of the manager that [New] was given.
type Manager struct {
	mcmanager.Manager

	registry *registry
	keeper   *keeper
	server   *server
}

// GetWebhookServer returns what takes the webhooks for members, before the manager starts. A conversion webhook, which is not a
// member's, is passed on to the webhook server of the local cluster.
func (m *Manager) GetWebhookServer() webhook.Server { return m.registry }

// New serves webhooks for all members of the manager's fleet, once that is started, and keeps their configurations there. Whoever works
// on a member keeps them, and every replica answers.
func New(mgr mcmanager.Manager, opts Options) (*Manager, error) {
	m, err := newManager(mgr, opts)
	if err != nil {
		return nil, fmt.Errorf("setting up webhooks for members: %w", err)
	}
	return m, nil
}

func newManager(mgr mcmanager.Manager, opts Options) (*Manager, error) {
	if err := opts.complete(mgr); err != nil {
		return nil, err
	}
	kinds, err := takeKinds(opts)
	if err != nil {
		return nil, err
	}
	secret, err := newStore(mgr, opts)
	if err != nil {
		return nil, err
	}
	opts.Server.TLSOpts = append(slices.Clip(opts.Server.TLSOpts), opts.secure(secret))
	answers := &server{fleet: mgr.GetFleet(), store: secret, longest: longestReview}
	served := newListener(opts.Server, answers)
	hooks := newRegistry(mgr, served)
	answers.hooks = hooks
	i := newInstaller(mgr, opts, kinds, hooks, secret)
	if err := i.setUp(); err != nil {
		return nil, err
	}
	k := newKeeper(mgr, secret, i)
	for _, runnable := range []manager.Runnable{secret, k, served} {
		if err := mgr.Add(runnable); err != nil {
			return nil, err
		}
	}
	return &Manager{Manager: mgr, registry: hooks, keeper: k, server: answers}, nil
}

// complete sets what is not set, and returns an error for what cannot be used.
func (o *Options) complete(mgr mcmanager.Manager) error {
	if mgr.GetProvider() == nil {
		return errors.New("the manager has no provider, and so no members: register the webhooks with the manager itself")
	}
	if wrong := validation.IsDNS1123Label(o.Name); len(wrong) > 0 {
		return fmt.Errorf("Options.Name: %q is no label of DNS: %s", o.Name, wrong[0])
	}
	address, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return fmt.Errorf("Options.URL: %w", err)
	case address.Scheme != "https" || address.Hostname() == "":
		return fmt.Errorf("Options.URL: %q is no https:// URL with a host", o.URL)
	case address.User != nil || address.RawQuery != "" || address.Fragment != "" || strings.Trim(address.Path, "/") != "":
		return errors.New("Options.URL: it takes no path, since members have paths of their own, and API servers accept no user, query or fragment")
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.Server.WebhookMux != nil || o.Server.ClientCAName != "" {
		return errors.New("Options.Server: WebhookMux and ClientCAName must not be set; Options.ClientCAs is for client certificates")
	}
	if o.Server.Port == 0 {
		o.Server.Port = DefaultPort
	}
	if o.Namespace == "" {
		if o.Namespace, err = inpod.Namespace(inpod.NamespaceFile); err != nil {
			return fmt.Errorf("%w, or Options.Namespace", err)
		}
	}
	return nil
}

// host is the one that the certificate is for.
func (o *Options) host() string {
	address, err := url.Parse(o.URL)
	if err != nil {
		return "" // complete has parsed it
	}
	return address.Hostname()
}

// ownAuthority reports whether the program has a certificate authority of its own.
func (o *Options) ownAuthority() bool { return o.Server.CertDir == "" }

// bundle returns what members are to trust, nothing if that is what their hosts do.
func (o *Options) bundle(m *material) ([]byte, error) {
	if o.ownAuthority() {
		return m.bundle(), nil
	}
	trusted, err := os.ReadFile(filepath.Join(o.Server.CertDir, "ca.crt"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return trusted, err
}

// secure returns what makes the server serve the certificate of a store, and ask for those of callers.
func (o *Options) secure(s *store) func(*tls.Config) {
	own, clients := o.ownAuthority(), o.ClientCAs
	return func(cfg *tls.Config) {
		cfg.MinVersion = max(cfg.MinVersion, tls.VersionTLS12)
		if own {
			cfg.GetCertificate = s.certificate
		}
		if clients != nil {
			cfg.ClientCAs, cfg.ClientAuth = clients, tls.RequireAndVerifyClientCert
		}
	}
}
