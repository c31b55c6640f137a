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
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
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
	board    *board
	fleets   chan *fleet.Fleet // what Follow was given
}

// Main runs program on clusters, shows what it does, and exits: with 0 once all has come true, or at Ctrl-C after that.
// The context of program ends with the demo.
func Main(program func(ctx context.Context, d *Demo) error) {
	os.Exit(perform(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr, program))
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

// Follow shows the states of the members of f. It is called once, and does not wait.
func (d *Demo) Follow(f *fleet.Fleet) { d.fleets <- f }

// Found counts a reconcile of an object that exists.
func (d *Demo) Found(req mcreconcile.Request, obj client.Object) {
	d.board.reconciled(req, obj.GetResourceVersion())
}

// Gone counts a reconcile of an object that no longer exists.
func (d *Demo) Gone(req mcreconcile.Request) { d.board.reconciled(req, "") }

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
	d := &Demo{local: s.local, provider: s.provider, board: newBoard(), fleets: make(chan *fleet.Fleet, 1)}
	ctx, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := program(ctx, d)
		end(fmt.Errorf("the program has ended by itself: %w", cmp.Or(err, errNoError)))
		ended <- err
	}()
	err := s.show(ctx, d, screen)
	end(nil)
	if programErr := <-ended; err == nil {
		err = programErr
	}
	return err
}

// show plays the script and shows what comes of it.
func (s *setting) show(ctx context.Context, d *Demo, screen screen) error {
	scene := scene{setting: s, board: d.board, screen: screen}
	select {
	case scene.fleet = <-d.fleets:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var showing sync.WaitGroup
	shown, hide := context.WithCancel(ctx)
	showing.Go(func() { d.board.follow(shown, scene.fleet) })
	showing.Go(func() { d.board.display(shown, screen) })
	err := scene.play(ctx)
	hide()
	showing.Wait()
	rows, _ := d.board.rows()
	screen.show(rows)
	screen.settle()
	if err != nil {
		return err
	}
	scene.sumUp()
	return nil
}
