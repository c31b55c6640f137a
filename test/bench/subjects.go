package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// What children run. Those of one member, and of one cluster, run one controller of ConfigMaps against a single cluster. Members in
// name have no controller. All others run one controller of ConfigMaps in the members that Secrets describe.
const (
	subjectOurs      = "fleet-runtime, Secrets"
	subjectPeer      = "multicluster-runtime, Secrets" // in the module peers
	subjectClusters  = "cluster.New for each"
	subjectOutage    = "fleet-runtime, Secrets, followed"
	subjectOneMember = "fleet-runtime, one member"
	subjectPlain     = "controller-runtime, one cluster"
	subjectSharded   = "fleet-runtime, sharded"
	subjectNames     = "fleet-runtime, sharded, members in name"
	subjectPeerNames = "multicluster-runtime, sharded, members in name" // in the module peers
)

var subjects = map[string]measure.Subject{
	subjectOurs:      ours,
	subjectClusters:  plainClusters,
	subjectOutage:    followed,
	subjectOneMember: oneMember,
	subjectPlain:     plainManager,
	subjectSharded:   sharded,
	subjectNames:     names,
}

func managerOptions() manager.Options {
	return manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: ptr.To(time.Minute)}
}

func ours(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	running, _, err := oursWithFleet(cfg, kubeconfig.Provider{Namespace: spec.Namespace}, probe)
	return running, err
}

// followed is ours, and notes when members become Unreachable, and Ready again.
func followed(ctx context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	provider := fleet.NewProvider("test", func(ctx context.Context, local cluster.Cluster, members fleet.Members) error {
		return kubeconfig.Provider{Namespace: spec.Namespace}.Run(ctx, local, apart{members})
	})
	running, f, err := oursWithFleet(cfg, provider, probe)
	if err != nil {
		return running, err
	}
	go func() {
		before := map[fleet.ClusterName]fleet.State{}
		for change := range f.Changes(ctx) {
			name, now := change.Status.Name, change.Status.State
			if change.Status.Engaged() && before[name] != "" && before[name] != now {
				probe.Member(string(name))
			}
			if change.Status.Engaged() {
				before[name] = now
			}
		}
	}()
	running.Ask = func(ctx context.Context) {
		for _, status := range f.List(labels.Everything()) {
			if e, err := f.Engagement(status.Name); err == nil {
				go func() {
					key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "object"}
					_ = e.Cluster().GetAPIReader().Get(ctx, key, &corev1.ConfigMap{})
				}()
			}
		}
	}
	return running, nil
}

// apart has members be clusters of their own, although they are one: the fleet would show each with a thousand duplicates.
type apart struct{ fleet.Members }

// Set implements fleet.Members.
func (a apart) Set(m fleet.Member) error {
	m.Identity = string(m.Name)
	return a.Members.Set(m)
}

func oursWithFleet(cfg *rest.Config, provider fleet.Provider, probe *measure.Probe) (measure.Running, *fleet.Fleet, error) {
	mgr, err := mcmanager.New(cfg, provider, managerOptions())
	if err != nil {
		return measure.Running{}, nil, err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("bench").For(&corev1.ConfigMap{}).Complete(
		mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			probe.Member(string(req.ClusterName))
			return reconcile.Result{}, nil
		}))
	// A member that drains is listed until nothing of it is left.
	return measure.Running{Run: mgr.Start, Engaged: func() int { return len(mgr.GetFleet().List(labels.Everything())) }}, mgr.GetFleet(), err
}

// plainClusters is a cluster.Cluster with one informer for each member, and nothing that manages them.
func plainClusters(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return measure.Running{}, err
	}
	run := func(ctx context.Context) error {
		var secrets corev1.SecretList
		if err := c.List(ctx, &secrets, client.InNamespace(spec.Namespace)); err != nil {
			return err
		}
		errs := make(chan error, len(secrets.Items))
		var members sync.WaitGroup
		defer members.Wait()
		for i := range secrets.Items {
			name, content := secrets.Items[i].Name, secrets.Items[i].Data[measure.SecretKey]
			members.Go(func() { errs <- plainCluster(ctx, content, func() { probe.Member(name) }) })
		}
		for {
			select {
			case err := <-errs:
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
	return measure.Running{Run: run, Engaged: func() int { return 0 }}, nil
}

func plainCluster(ctx context.Context, content []byte, seen func()) error {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return err
	}
	c, err := cluster.New(cfg)
	if err != nil {
		return err
	}
	informer, err := c.GetCache().GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen() }}); err != nil {
		return err
	}
	return c.Start(ctx)
}

// inNamespace limits the cache of a cluster to one namespace.
func inNamespace(namespace string) cluster.Option {
	return func(o *cluster.Options) { o.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}} }
}

// oneMember has as many requests of its member in flight as there are workers, like the plain manager.
func oneMember(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	provider := fleet.NewProvider("test", func(ctx context.Context, _ cluster.Cluster, members fleet.Members) error {
		if err := members.Set(fleet.Member{Name: "one", Config: cfg}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	mgr, err := mcmanager.New(cfg, provider, managerOptions(), func(o *fleet.Options) {
		o.ClusterOptions = func(fleet.Member) []cluster.Option { return []cluster.Option{inNamespace(spec.Namespace)} }
	})
	if err != nil {
		return measure.Running{}, err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("bench").For(&corev1.ConfigMap{}).WithEventFilter(probe.Predicate()).
		WithOptions(mcbuilder.Options{MaxConcurrentReconciles: spec.Workers}).
		WithQueue(mcqueue.Options[mcreconcile.Request]{InFlightPerCluster: spec.Workers}).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			return probe.Object(req.NamespacedName), nil
		}))
	return measure.Running{Run: mgr.Start, Engaged: func() int { return 1 }}, err
}

func plainManager(_ context.Context, cfg *rest.Config, spec measure.Spec, probe *measure.Probe) (measure.Running, error) {
	options := managerOptions()
	options.Cache.DefaultNamespaces = map[string]cache.Config{spec.Namespace: {}}
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return measure.Running{}, err
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("bench").For(&corev1.ConfigMap{}).WithEventFilter(probe.Predicate()).
		WithOptions(controller.Options{MaxConcurrentReconciles: spec.Workers}).
		Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			return probe.Object(req.NamespacedName), nil
		}))
	return measure.Running{Run: mgr.Start, Engaged: func() int { return 1 }}, err
}
