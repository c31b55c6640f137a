// Command cost measures what spans add to a reconcile that reads an object from the API server and writes it, for test/bench. It prints the
// median of each way in nanoseconds, as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/telemetry"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	rounds := flag.Int("rounds", 1000, "how often each way is measured")
	flag.Parse()
	if err := run(context.Background(), *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "cost:", err)
		os.Exit(1)
	}
}

// way is one of those that are compared.
type way struct {
	name       string
	reconciler mcreconcile.Reconciler
	req        mcreconcile.Request
	took       []time.Duration
}

func run(ctx context.Context, rounds int) error {
	cfg, err := ctrl.GetConfig() // of the flag -kubeconfig
	if err != nil {
		return err
	}
	cfg.QPS = -1
	exporting := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	defer func() { _ = exporting.Shutdown(ctx) }() // nothing is exported
	off := telemetry.New(telemetry.Options{TracerProvider: noop.NewTracerProvider()})
	on := telemetry.New(telemetry.Options{TracerProvider: exporting})

	var ways []*way
	for name, traces := range map[string]*telemetry.Traces{"without": nil, "off": off, "on": on} {
		w, err := newWay(ctx, cfg, name, traces)
		if err != nil {
			return err
		}
		ways = append(ways, w)
	}
	for n := range rounds + 100 { // the first ones do not count
		for i := range ways { // in turn, so that what else the machine does is the same for all
			w := ways[(n+i)%len(ways)]
			begun := time.Now()
			if _, err := w.reconciler.Reconcile(ctx, w.req); err != nil {
				return err
			}
			if n >= 100 {
				w.took = append(w.took, time.Since(begun))
			}
		}
	}
	medians := map[string]int64{}
	for _, w := range ways {
		slices.Sort(w.took)
		medians[w.name] = int64(w.took[len(w.took)/2])
	}
	return json.NewEncoder(os.Stdout).Encode(medians)
}

// newWay makes one that reconciles an object of its own.
func newWay(ctx context.Context, cfg *rest.Config, name string, traces *telemetry.Traces) (*way, error) {
	w := &way{name: name}
	w.req.Namespace, w.req.Name = metav1.NamespaceDefault, "traces-"+name
	if traces != nil {
		cfg = traces.Config(cfg)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	w.reconciler = writes(c)
	if traces != nil {
		w.reconciler = traces.Middleware()(w.reconciler)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.req.Namespace, Name: w.req.Name}}
	return w, client.IgnoreAlreadyExists(c.Create(ctx, cm))
}

// writes reads an object, and changes it.
func writes(c client.Client) mcreconcile.Reconciler {
	return mcreconcile.Func(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		cm := &corev1.ConfigMap{}
		if err := c.Get(ctx, req.NamespacedName, cm); err != nil {
			return reconcile.Result{}, err
		}
		count, _ := strconv.Atoi(cm.Data["count"]) // zero at first
		cm.Data = map[string]string{"count": strconv.Itoa(count + 1)}
		return reconcile.Result{}, c.Update(ctx, cm)
	})
}
