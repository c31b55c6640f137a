// Command mcctl joins clusters to a fleet, shows how they are, and lets them leave. As kubectl-mcctl it is a plugin of kubectl:
//
//	kubectl mcctl join east --member-context kind-east --rules rbac/member.yaml
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/command"
)

// released is the version of a program that make release built: it comes from a checkout, so its module has none.
var released string

func main() {
	ctrllog.SetLogger(logr.Discard()) // controller-runtime complains on the terminal without one
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	code := command.Run(ctx, released, os.Args, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
