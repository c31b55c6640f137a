// Package replicas has tests of several processes that share members, with real API servers. What it claims, it reads from the logs
// of proxies before the members alone.
//
// Those of clocks that go wrong run in the tests of package sharding, which can give a replica another clock.
package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/providers/static"
	"github.com/fleet-runtime/fleet-runtime/sharding"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

// role is what one process of the program is told.
type role struct {
	Hub      string // a file
	Members  map[fleet.ClusterName]place
	Sharding sharding.Options
	// Takes is how long a reconcile takes, whatever its context says if it is deaf.
	Takes time.Duration
	Deaf  bool
	Clock Clock
}

// Clock says how the clock of a replica goes. The zero value is the machine's.
type Clock struct {
	// Rate is how fast it goes, 0 for as fast as the machine's.
	Rate float64
	// Jump is what is added to the wall clock when the process gets a SIGUSR1.
	Jump time.Duration
	// Stops is whether the monotonic clock stands still from then on.
	Stops bool
}

// Share makes what lets a process share the members. signals has the process's SIGUSR1.
type Share func(opts sharding.Options, c Clock, signals <-chan os.Signal) mcmanager.FleetOption

// onMachineTime shares members as programs do.
func onMachineTime(opts sharding.Options, _ Clock, _ <-chan os.Signal) mcmanager.FleetOption {
	return mcmanager.Sharded(opts)
}

// place is where a member is. Its namespace is its own.
type place struct {
	Host, Namespace string
	CA              []byte
}

// start starts a process of the program.
func (r role) start(s *scene) *stage.Program {
	s.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		s.Fatal(err)
	}
	return stage.Start(s.T, string(text))
}

// RunProgram is what the test binary does where it is started as a program.
func RunProgram(share Share) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)))
	r := role{}
	if err := errors.Join(json.Unmarshal([]byte(os.Args[1]), &r), r.run(ctrl.SetupSignalHandler(), share)); err != nil {
		ctrl.Log.Error(err, "The program ends")
		os.Exit(1)
	}
}

func (r *role) run(ctx context.Context, share Share) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	cfg, err := clientcmd.BuildConfigFromFlags("", r.Hub)
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(cfg, r.provider(), mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}},
		share(r.Sharding, r.Clock, signals), r.onlyItsNamespace)
	if err != nil {
		return err
	}
	if err := mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WithOptions(mcbuilder.Options{MaxConcurrentReconciles: 64}).Complete(&writer{r}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (r *role) provider() (members static.Provider) {
	for name, at := range r.Members {
		members = append(members, fleet.Member{Name: name, Config: &rest.Config{
			Host: at.Host, TLSClientConfig: rest.TLSClientConfig{CAData: at.CA}, QPS: -1,
		}})
	}
	return members
}

// onlyItsNamespace makes each member see its own namespace alone: several are one cluster.
func (r *role) onlyItsNamespace(o *fleet.Options) {
	o.ClusterOptions = func(m fleet.Member) []cluster.Option {
		return []cluster.Option{func(c *cluster.Options) {
			c.Cache.DefaultNamespaces = map[string]cache.Config{r.Members[m.Name].Namespace: {}}
		}}
	}
}

// writer signs each change, once.
type writer struct{ *role }

// signature is what a replica writes to a change.
type signature struct {
	By    string `json:"by"`
	Epoch string `json:"epoch"`
}

// signatures is the body of a request that writes one.
type signatures struct {
	Data signature `json:"data"`
}

const isChange = "change-"

// Reconcile implements mcreconcile.Reconciler.
func (w *writer) Reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	if !strings.HasPrefix(req.Name, isChange) {
		return reconcile.Result{}, nil
	}
	cl := mcreconcile.ClusterFrom(ctx).GetClient()
	change := &corev1.ConfigMap{}
	if err := cl.Get(ctx, req.NamespacedName, change); err != nil || change.Data["by"] != "" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	epoch := mcreconcile.Epoch(ctx)
	if w.Deaf {
		ctx = context.WithoutCancel(ctx)
	}
	timer := time.NewTimer(w.Takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return reconcile.Result{}, context.Cause(ctx)
	}
	body, err := json.Marshal(signatures{signature{By: w.Sharding.Name, Epoch: strconv.FormatInt(epoch, 10)}})
	if err != nil {
		return reconcile.Result{}, err
	}
	err = cl.Patch(ctx, change, client.RawPatch(types.MergePatchType, body))
	if err != nil {
		ctrl.Log.Info("A write was refused", "cluster", req.ClusterName, "epoch", epoch, "error", err.Error())
	}
	return reconcile.Result{}, err
}
