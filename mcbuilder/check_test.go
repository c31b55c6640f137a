package mcbuilder

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mchandler"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// configured is a manager with options for its controllers.
type configured struct {
	managing
	options config.Controller
}

// GetScheme implements mcmanager.Manager.
func (configured) GetScheme() *runtime.Scheme { return scheme.Scheme }

// GetControllerOptions implements mcmanager.Manager.
func (c configured) GetControllerOptions() config.Controller { return c.options }

// manages returns a manager with a fleet, whose members several replicas may share.
func manages(shared bool) configured {
	var opts fleet.Options
	if shared {
		opts.Ownership = struct{ fleet.Ownership }{}
	}
	return configured{managing: managing{fleet: fleet.New(opts), provider: true}}
}

// TestWhatIsMissingIsSaid, and nothing else: each lack has a sentence of its own.
func TestWhatIsMissingIsSaid(t *testing.T) {
	plain := mcreconcile.Func(func(context.Context, mcreconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	type builds = func(b *Builder) *Builder
	pods := func(b *Builder) *Builder { return b.For(&corev1.Pod{}) }
	options := func(o Options) builds { return func(b *Builder) *Builder { return pods(b).WithOptions(o) } }
	for name, c := range map[string]struct {
		build  builds
		by     mcreconcile.Reconciler
		shared bool
		want   string // empty for nothing
	}{
		"Nothing":             {build: pods, by: plain},
		"NothingInAShare":     {build: pods, by: plain, shared: true},
		"NoReconciler":        {build: pods, want: "the reconciler is nil"},
		"TwoReconcilers":      {build: options(Options{Reconciler: plain}), by: plain, want: "give the reconciler to Complete or Build, not to WithOptions"},
		"NothingWatched":      {build: func(b *Builder) *Builder { return b.Named("x") }, by: plain, want: "nothing is watched: use For, Watches or WatchesRawSource"},
		"ARawSource":          {build: func(b *Builder) *Builder { return b.Named("x").WatchesRawSource(nil) }, by: plain},
		"AWatchAndARawSource": {build: func(b *Builder) *Builder { return pods(b).WatchesRawSource(nil) }, by: plain},
		"NoName":              {build: watching(&corev1.Pod{}), by: plain, want: "the controller has no name: use For or Named"},
		"AName":               {build: func(b *Builder) *Builder { return watching(&corev1.Pod{})(b.Named("x")) }, by: plain},
		"NoObject":            {build: func(b *Builder) *Builder { return watching(nil)(b.Named("x")) }, by: plain, want: "the object to watch is nil"},
		"OwnsBeforeFor":       {build: func(b *Builder) *Builder { return pods(b.Owns(&corev1.Pod{})) }, by: plain, want: "Owns comes after For, which names the owner's kind"},
		"ForTwice":            {build: func(b *Builder) *Builder { return pods(pods(b)) }, by: plain, want: "For may be called once"},
		"OnEveryReplica":      {build: options(Options{NeedLeaderElection: new(false)}), by: plain, shared: true},
		"OnTheLeaderInAShare": {build: options(Options{NeedLeaderElection: new(true)}), by: plain, shared: true, want: "the option NeedLeaderElection is for"},
		"OnTheLeader":         {build: options(Options{NeedLeaderElection: new(true)}), by: plain},
		"OnTheLeaderForItself": {build: func(b *Builder) *Builder {
			return b.For(&corev1.Pod{}, InLocalCluster).WithOptions(Options{NeedLeaderElection: new(true)})
		}, by: plain, shared: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.build(ControllerManagedBy(manages(c.shared))).check(c.by)
			if (err != nil) != (c.want != "") || err != nil && (!strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("it is %v, want %q", err, c.want)
			}
		})
	}
	if gvk, err := pods(ControllerManagedBy(manages(false))).check(plain); err != nil || gvk.Kind != "Pod" {
		t.Errorf("the kind is %s: %v", gvk, err)
	}
	if _, err := ControllerManagedBy(nil).For(&corev1.Pod{}).check(plain); err == nil || err.Error() != "the manager is nil" {
		t.Errorf("without a manager: %v", err)
	}
}

func watching(obj client.Object) func(b *Builder) *Builder {
	return func(b *Builder) *Builder { return b.Watches(obj, mchandler.EnqueueRequestForObject) }
}

// TestTheNearestOptionSaysHowManyWork: the controller's, that of the kind, that of the manager, or the default.
func TestTheNearestOptionSaysHowManyWork(t *testing.T) {
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	for name, c := range map[string]struct {
		own, kind, all int
		alone          bool // there are no members
		want           int
	}{
		"Own": {own: 1, kind: 2, all: 3, want: 1}, "OfTheKind": {kind: 1, all: 3, want: 1}, "OfTheManager": {all: 1, want: 1},
		"Default": {want: DefaultWorkers}, "WithoutMembers": {alone: true, want: 1},
	} {
		mgr := manages(false)
		mgr.provider = !c.alone
		mgr.options = config.Controller{MaxConcurrentReconciles: c.all, GroupKindConcurrency: map[string]int{"Pod": c.kind}}
		b := ControllerManagedBy(mgr).WithOptions(Options{MaxConcurrentReconciles: c.own})
		if got := b.workers(pod); got != c.want {
			t.Errorf("%s: %d work at once, want %d", name, got, c.want)
		}
	}
}
