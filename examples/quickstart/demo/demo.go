// Package demo is what the quickstart needs beside its controller: clusters to run against, a script by which they come,
// break and go, and a table of what the controller makes of that.
//
// Without arguments the clusters are control planes that the demo starts and ends. With contexts of a kubeconfig they are
// real, and nothing is written to them.
package demo

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcmanager"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/sharding"
)

// Codes to exit with, besides 0.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// Demo is the demo as the program sees it. Its methods are safe for concurrent use.
type Demo struct {
	local    *rest.Config
	provider fleet.Provider // nil stands for the program's own
	replica  string         // its name, "" if it shares members with no other
	to       audience
	fleets   chan *fleet.Fleet // what Follow was given
}

// Main runs program on clusters, shows what it does, and exits: with 0 once all has come true, or at Ctrl-C after that.
// The context of program ends with the demo.
func Main(program func(ctx context.Context, d *Demo) error) {
	ctx := ctrl.SetupSignalHandler()
	if name := os.Getenv(asReplica); name != "" {
		os.Exit(beReplica(ctx, name, os.Args[1], program))
	}
	os.Exit(perform(ctx, os.Args[1:], os.Stdout, os.Stderr, program))
}

// LocalConfig is the way to reach the cluster that the manager runs against.
func (d *Demo) LocalConfig() *rest.Config { return rest.CopyConfig(d.local) }

// ProviderOr returns own, or the provider of the contexts that the user has named.
func (d *Demo) ProviderOr(own fleet.Provider) fleet.Provider {
	if d.provider != nil {
		return d.provider
	}
	return own
}

// Sharded lets the processes of --replicas share the members. Without that it is nothing.
func (d *Demo) Sharded() []mcmanager.FleetOption {
	if d.replica == "" {
		return nil
	}
	return []mcmanager.FleetOption{mcmanager.Sharded(sharding.Options{
		ID: "quickstart", Namespace: secrets, Name: d.replica, // in a pod, these are found
		LeaseDuration: shortLease, Settle: time.Second,
	})}
}

// Follow shows the states of the members of f. It is called once, and does not wait.
func (d *Demo) Follow(f *fleet.Fleet) { d.fleets <- f }

// Found counts a reconcile of an object that exists.
func (d *Demo) Found(req mcreconcile.Request, obj client.Object) {
	d.to.reconciled(req, obj.GetResourceVersion())
}

// Gone counts a reconcile of an object that no longer exists.
func (d *Demo) Gone(req mcreconcile.Request) { d.to.reconciled(req, "") }

// perform is the demo from its arguments to its exit code.
func perform(ctx context.Context, args []string, stdout *os.File, stderr io.Writer, program func(context.Context, *Demo) error) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		complain(stderr, err)
		return exitUsage
	}
	begun := time.Now()
	log, err := openLog(o.logFile)
	if err != nil {
		complain(stderr, err)
		return exitFailed
	}
	screen := newScreen(stdout)
	o.log = log.file
	err = o.perform(ctx, screen, program)
	after := time.Since(begun).Round(time.Second).String()
	switch {
	case err == nil:
		screen.say("Ended after " + after + ". Nothing is left running.")
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		screen.say("Interrupted after " + after + ". Nothing is left running.")
		log.discard()
		return exitInterrupted
	default:
		complain(stderr, err)
		log.leave(stderr)
		return exitFailed
	}
	log.discard()
	return 0
}

func complain(stderr io.Writer, err error) { _, _ = fmt.Fprintln(stderr, "quickstart:", err) }

var errNoError = errors.New("it gave no error")

// perform sets up the clusters, and runs the program on them.
func (o options) perform(ctx context.Context, screen screen, program func(context.Context, *Demo) error) error {
	s, err := o.setUp(ctx, screen)
	if err != nil {
		return err
	}
	return errors.Join(s.perform(ctx, screen, program), s.close())
}

// perform runs the program, and the script beside it.
func (s *setting) perform(ctx context.Context, screen screen, program func(context.Context, *Demo) error) error {
	board := newBoard()
	d := &Demo{local: s.local, provider: s.provider, to: board, fleets: make(chan *fleet.Fleet, 1)}
	if s.replicas != nil {
		program = func(ctx context.Context, d *Demo) error {
			d.Follow(nil)
			return s.replicas.run(ctx, board)
		}
	}
	ctx, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := program(ctx, d)
		end(fmt.Errorf("the program has ended by itself: %w", cmp.Or(err, errNoError)))
		ended <- err
	}()
	err := s.show(ctx, d, board, screen)
	end(nil)
	if programErr := <-ended; err == nil {
		err = programErr
	}
	return err
}

// show plays the script and shows what comes of it.
func (s *setting) show(ctx context.Context, d *Demo, board *board, screen screen) error {
	scene := scene{setting: s, board: board, screen: screen}
	select {
	case scene.fleet = <-d.fleets:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var showing sync.WaitGroup
	shown, hide := context.WithCancel(ctx)
	if scene.fleet != nil {
		showing.Go(func() { follow(shown, scene.fleet, board) })
	}
	showing.Go(func() { board.display(shown, screen) })
	err := scene.play(ctx)
	hide()
	showing.Wait()
	rows, _ := board.rows()
	screen.show(rows)
	screen.settle()
	if err != nil {
		return err
	}
	scene.sumUp()
	return nil
}
