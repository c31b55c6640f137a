package mcbuilder

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestEveryOptionOfAControllerIsTakenOrRefused: controller-runtime may add one at any time, which must be in this table then.
func TestEveryOptionOfAControllerIsTakenOrRefused(t *testing.T) {
	t.Parallel()
	const taken, refused = "taken", "refused"
	want := map[string]string{
		"SkipNameValidation":      taken,
		"MaxConcurrentReconciles": taken,
		"CacheSyncTimeout":        taken,
		"RecoverPanic":            taken,
		"NeedLeaderElection":      taken,
		"Reconciler":              refused,
		"RateLimiter":             taken,
		"NewQueue":                refused,
		"Logger":                  taken,
		"LogConstructor":          taken,
		"UsePriorityQueue":        taken,
		"EnableWarmup":            taken,
		"ReconciliationTimeout":   taken,
	}
	got := map[string]string{}
	for i := range reflect.TypeFor[controller.Options]().NumField() {
		field := reflect.TypeFor[controller.Options]().Field(i)
		given := controller.Options{}
		reflect.ValueOf(&given).Elem().Field(i).Set(something(t, field))
		b := ControllerManagedBy(managing{}).WithControllerOptions(given)
		_, err := b.check(nil)
		kept := reflect.ValueOf(b.options).FieldByName(field.Name)
		switch {
		case len(b.errs) > 0 && strings.Contains(err.Error(), "the option "+field.Name):
			got[field.Name] = refused
		case kept.IsValid() && !kept.IsZero():
			got[field.Name] = taken
		default:
			got[field.Name] = "lost"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what becomes of the options (-want, +got):\n%s", diff)
	}
}

// something returns a value for a field that is not its zero value.
func something(t *testing.T, field reflect.StructField) reflect.Value {
	t.Helper()
	switch field.Name {
	case "Reconciler":
		return reflect.ValueOf(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }))
	case "RateLimiter":
		return reflect.ValueOf(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	case "Logger":
		return reflect.ValueOf(funcr.New(func(string, string) {}, funcr.Options{}))
	}
	switch kind := field.Type.Kind(); {
	case kind == reflect.Pointer:
		return reflect.New(field.Type.Elem())
	case kind == reflect.Func:
		return reflect.MakeFunc(field.Type, func([]reflect.Value) []reflect.Value { return []reflect.Value{reflect.Zero(field.Type.Out(0))} })
	case field.Type.ConvertibleTo(reflect.TypeFor[int64]()):
		return reflect.ValueOf(1).Convert(field.Type)
	}
	t.Fatalf("controller.Options has %s of type %s: say here what a value of it is, and in liftOptions what becomes of it", field.Name, field.Type)
	return reflect.Value{}
}

func TestFailuresInOneClusterDoNotSlowDownAnother(t *testing.T) {
	t.Parallel()
	b := ControllerManagedBy(nil).WithControllerOptions(controller.Options{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Hour),
	})
	limiter := b.options.RateLimiter
	for _, cluster := range []mcreconcile.ClusterName{"", "a", "a/b", "b"} {
		req := request(cluster, "x")
		for range 3 {
			limiter.When(req)
		}
	}
	limiter.Forget(request("b", "x"))
	for cluster, want := range map[mcreconcile.ClusterName]int{"": 3, "a": 3, "a/b": 3, "b": 0, "c": 0} {
		if got := limiter.NumRequeues(request(cluster, "x")); got != want {
			t.Errorf("%d failures are counted in cluster %q, want %d", got, cluster, want)
		}
	}
}

func TestALogConstructorForOneClusterGetsTheCluster(t *testing.T) {
	t.Parallel()
	var lines []string
	base := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	b := ControllerManagedBy(nil).WithControllerOptions(controller.Options{LogConstructor: func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return base
		}
		return base.WithValues("object", req.String())
	}})
	newLogger := logConstructor(logr.Discard(), "c", schema.GroupVersionKind{}, b.options.LogConstructor)
	newLogger(nil).Info("started")
	newLogger(new(request("a", "x"))).Info("reconciled")
	want := []string{`"level"=0 "msg"="started"`, `"level"=0 "msg"="reconciled" "object"="/x" "cluster"="a"`}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("lines (-want, +got):\n%s", diff)
	}
}

func TestALoggerOfTheOptionsIsUsed(t *testing.T) {
	t.Parallel()
	var lines int
	b := ControllerManagedBy(managing{}).WithControllerOptions(controller.Options{Logger: funcr.New(func(string, string) { lines++ }, funcr.Options{})})
	if b.logger().Info("x"); lines != 1 {
		t.Error("the line went elsewhere")
	}
}

// ofTenant is a request of a user's own type.
type ofTenant struct{ mcreconcile.Request }

// WithCluster implements mcreconcile.ClusterAware.
func (r ofTenant) WithCluster(name mcreconcile.ClusterName) ofTenant {
	return ofTenant{r.Request.WithCluster(name)}
}

func TestOptionsForOneClusterNeedItsRequests(t *testing.T) {
	t.Parallel()
	b := TypedControllerManagedBy[ofTenant](managing{}).WithControllerOptions(controller.Options{})
	if _, err := b.check(nil); err == nil || !strings.Contains(err.Error(), "use WithOptions") {
		t.Errorf("the error is %v", err)
	}
}

// TestWhereAControllerRuns is what the manager logs.
func TestWhereAControllerRuns(t *testing.T) {
	t.Parallel()
	east := labels.SelectorFromSet(labels.Set{"region": "east"})
	cases := map[string]struct {
		watches  [][]WatchOption
		raw      int
		provider bool
		want     string
	}{
		"Everywhere":    {provider: true, watches: [][]WatchOption{nil, nil}, want: "every member"},
		"Selected":      {provider: true, watches: [][]WatchOption{{InMembers(east)}}, want: "the members that match region=east"},
		"AllSelected":   {provider: true, watches: [][]WatchOption{{InMembers(labels.Everything())}}, want: "every member"},
		"Local":         {provider: true, watches: [][]WatchOption{{InLocalCluster}}, want: "the local cluster alone"},
		"LocalAndOther": {provider: true, watches: [][]WatchOption{{InLocalCluster}}, raw: 1, want: "the local cluster"},
		"Both":          {provider: true, watches: [][]WatchOption{{InLocalCluster}, nil}, want: "the local cluster, every member"},
		"ForEach":       {provider: true, watches: [][]WatchOption{{ForEachMember(nil)}}, want: "the local cluster for every member"},
		"ForSelected":   {provider: true, watches: [][]WatchOption{{ForEachMember(east)}}, want: "the local cluster for the members that match region=east"},
		"NoProvider":    {watches: [][]WatchOption{{InMembers(east)}}, want: "the local cluster alone"},
		"RawSources":    {provider: true, raw: 1, want: "the clusters that its sources name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := ControllerManagedBy(managing{provider: tc.provider})
			for _, opts := range tc.watches {
				b.Watches(nil, nil, opts...)
			}
			for range tc.raw {
				b.WatchesRawSource(nil)
			}
			if got := b.where(); got != tc.want {
				t.Errorf("it runs in %s, want %s", got, tc.want)
			}
		})
	}
}

// TestOptionsLeaveTheRateLimiterAndTheLoggerThatTheyDoNotSay: a library has set them, and its user adds other options, which replace all others.
func TestOptionsLeaveTheRateLimiterAndTheLoggerThatTheyDoNotSay(t *testing.T) {
	t.Parallel()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Second, time.Minute)
	made := 0
	b := (&Builder{}).WithOptions(Options{RateLimiter: limiter, RecoverPanic: new(true)}).
		WithLogConstructor(func(*mcreconcile.Request) logr.Logger { made++; return logr.Discard() }).
		WithOptions(Options{MaxConcurrentReconciles: 4}).WithControllerOptions(controller.Options{MaxConcurrentReconciles: 5})
	if b.options.RateLimiter != limiter || b.options.MaxConcurrentReconciles != 5 || b.options.RecoverPanic != nil {
		t.Errorf("the options are %+v", b.options)
	}
	if b.options.LogConstructor == nil {
		t.Fatal("what makes loggers is gone")
	}
	if b.options.LogConstructor(nil); made != 1 {
		t.Error("something else makes loggers")
	}
	other := workqueue.NewTypedItemExponentialFailureRateLimiter[mcreconcile.Request](time.Second, time.Hour)
	b.WithOptions(Options{RateLimiter: other, LogConstructor: func(*mcreconcile.Request) logr.Logger { return logr.Discard() }})
	if b.options.LogConstructor(nil); b.options.RateLimiter != other || made != 1 {
		t.Error("another rate limiter, or logger, was not taken")
	}
}
