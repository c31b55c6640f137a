package telemetry_test

import (
	"context"
	"log"

	"go.opentelemetry.io/otel"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/telemetry"
)

var (
	cfg        *rest.Config   // of the local cluster
	clusters   fleet.Provider // of members
	reconciler mcreconcile.Reconciler
)

// A fleet and one of its controllers are traced with OpenTelemetry's global provider.
func ExampleNew() {
	traces := telemetry.New(telemetry.Options{})
	mgr, err := mcmanager.New(traces.Config(cfg), clusters, mcmanager.Options{}, traces.Fleet)
	if err != nil {
		log.Fatal(err)
	}
	err = mcbuilder.ControllerManagedBy(mgr).
		For(&appsv1.Deployment{}).
		WithMiddleware(traces.Middleware()).
		Complete(reconciler)
	if err != nil {
		log.Fatal(err)
	}
}

// A program's own work in a member has a span, and so has each request of it.
func ExampleWithRequests() {
	copySecret := func(ctx context.Context, member client.Client, secret *corev1.Secret) error {
		ctx, span := otel.Tracer("example.com/copies").Start(ctx, "copy")
		defer span.End()
		return member.Create(telemetry.WithRequests(ctx), secret)
	}
	_ = copySecret
}
