// Package members shows each member of a fleet as an object of the kind Member in the manager's cluster, and lets people pause and
// drain members by it. [Setup] turns it on.
package members

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/internal/inpod"
	"github.com/fleet-runtime/fleet-runtime/internal/late"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/members/v1alpha1"
)

// Options say where Members are. The zero value works in a pod.
type Options struct {
	// Namespace is where Members are. No other fleet may have its Members there. Default: the pod's.
	Namespace string

	// ForgetAfter is how long a manager waits, after its start, for the provider to report a cluster that has a Member, before it
	// deletes that. Default: 1 minute.
	ForgetAfter time.Duration
}

const (
	controllerName = "members"

	// workers is how many Members are written at once, and requestsPerSecond how many requests are sent in a second, of each replica.
	workers           = 4
	requestsPerSecond = 100
)

// Setup turns Members on, before the manager starts. The kind must be installed: see v1alpha1.CRD.
func Setup(mgr mcmanager.Manager, opts Options) error {
	if err := setUp(mgr, opts); err != nil {
		return fmt.Errorf("setting up Members: %w", err)
	}
	return nil
}

func setUp(mgr mcmanager.Manager, opts Options) error {
	if opts.ForgetAfter <= 0 {
		opts.ForgetAfter = late.Most
	}
	if opts.Namespace == "" {
		own, err := inpod.Namespace(inpod.NamespaceFile)
		if err != nil {
			return fmt.Errorf("%w, or Options.Namespace", err)
		}
		opts.Namespace = own
	}
	m, err := newMirror(mgr, opts)
	if err != nil {
		return err
	}
	if err := mgr.Add(m.specs); err != nil {
		return err
	}
	mgr.GetFleet().HoldBy(m.specs.hold)
	if !m.fleet.Shared() {
		if err := mgr.Add(m.pulse()); err != nil {
			return err
		}
	}
	c, err := controller.NewTypedUnmanaged(controllerName, controller.TypedOptions[string]{
		Reconciler: m, MaxConcurrentReconciles: workers, NeedLeaderElection: new(false), Logger: m.log,
		SkipNameValidation: new(true), UsePriorityQueue: new(true),
	})
	if err != nil {
		return err
	}
	if err := c.Watch(source.TypedFunc[string](m.begin)); err != nil {
		return err
	}
	if err := mgr.Add(follower{m}); err != nil {
		return err
	}
	return mgr.Add(c)
}

func newMirror(mgr mcmanager.Manager, opts Options) (*mirror, error) {
	if err := served(mgr.GetRESTMapper()); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS, cfg.Burst, cfg.RateLimiter = requestsPerSecond, requestsPerSecond, nil
	watched, err := cache.New(cfg, cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{opts.Namespace: {}}, DefaultTransform: slim,
	})
	if err != nil {
		return nil, err
	}
	writer, err := client.New(cfg, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: scheme, Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	return &mirror{
		fleet: mgr.GetFleet(), elected: mgr.Elected(), specs: specs{watched, opts.Namespace}, writer: writer, opts: opts,
		log: mgr.GetLogger().WithName(controllerName), shown: shown{of: map[string]*record{}, strangers: map[string]bool{}},
		versions: versions{of: map[string]versionOf{}, turns: make(chan struct{}, versionsAtOnce)}, begun: make(chan struct{}),
	}, nil
}
