package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// childArgument, as the only one, makes this program a child of itself: its memory is then that of what it measures.
const childArgument = "child"

func serve(ctx context.Context) error { return measure.Serve(ctx, os.Stdin, os.Stdout, subjects) }

// child is a process that runs one subject. It is used by one goroutine at a time.
type child struct {
	spec    measure.Spec
	cmd     *exec.Cmd
	asks    *json.Encoder
	answers *json.Decoder
}

func (w *world) startChild(ctx context.Context, spec measure.Spec) (*child, error) {
	program, arguments := w.peers, []string(nil)
	if subjects[spec.Subject] != nil {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program, arguments = self, []string{childArgument}
	}
	if spec.Kubeconfig == nil {
		spec.Kubeconfig = w.kubeconfig
	}
	c := &child{spec: spec, cmd: exec.CommandContext(ctx, program, arguments...)} //nolint:gosec // it was built here
	c.cmd.Stderr = os.Stderr
	if *profiles != "" {
		c.cmd.Env = append(os.Environ(), "GODEBUG=memprofilerate=4096") // the default misses what is small
	}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.asks, c.answers = json.NewEncoder(stdin), json.NewDecoder(stdout)
	if err := c.asks.Encode(spec); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if _, err := c.ask(measure.Request{Do: measure.Start}); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *child) ask(r measure.Request) (measure.Answer, error) {
	var a measure.Answer
	err := c.asks.Encode(r)
	if err == nil {
		err = c.answers.Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return a, fmt.Errorf("asking %s to %s: %w", c.spec.Subject, r.Do, err)
	}
	return a, nil
}

// reset makes the child forget what it has seen, and count only what is written from now on.
func (c *child) reset() error {
	_, err := c.ask(measure.Request{Do: measure.Reset, Since: time.Now().UnixNano()})
	return err
}

// wait waits until the child has seen count items.
func (c *child) wait(count int, atMost time.Duration) (measure.Answer, error) {
	a, err := c.ask(measure.Request{Do: measure.Wait, Count: count, AtMost: atMost})
	if err == nil && a.Count < count {
		err = fmt.Errorf("%s has seen %d of %d after %s", c.spec.Subject, a.Count, count, atMost)
	}
	return a, err
}

func (c *child) sample() (measure.Sample, error) {
	a, err := c.ask(measure.Request{Do: measure.TakeSample})
	return a.Sample, err
}

// settled samples until the goroutines have not become fewer for a while, since what has ended may need a moment to go.
func (c *child) settled(ctx context.Context, quiet, atMost time.Duration) (measure.Sample, error) {
	look := time.NewTicker(quiet / 10)
	defer look.Stop()
	over := time.After(atMost)
	now, err := c.sample()
	fewest, since := now.Goroutines, time.Now()
	for err == nil && time.Since(since) < quiet {
		select {
		case <-look.C:
		case <-over:
			return now, nil
		case <-ctx.Done():
			return now, context.Cause(ctx)
		}
		now, err = c.sample()
		if now.Goroutines < fewest {
			fewest, since = now.Goroutines, time.Now()
		}
	}
	return now, err
}

// profile writes the child's profiles if the user wants them.
func (c *child) profile(name string) error {
	return c.write(measure.Request{Do: measure.Profile}, name)
}

// trace begins or ends an execution trace of the child if the user wants it.
func (c *child) trace(on bool, name string) error {
	return c.write(measure.Request{Do: measure.Trace, On: on}, name)
}

// write makes the child write files of a name, if the user wants them.
func (c *child) write(r measure.Request, name string) error {
	if *profiles == "" {
		return nil
	}
	dir, err := filepath.Abs(*profiles)
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	if err != nil {
		return err
	}
	r.Path = filepath.Join(dir, slug(c.spec.Subject)+"-"+name)
	_, err = c.ask(r)
	return err
}

// slug returns the name of a subject in a form that paths and namespaces allow.
func slug(subject string) string { return strings.NewReplacer(" ", "-", ",", "").Replace(subject) }

// close kills the process: nothing of it is needed any more.
func (c *child) close() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it says that the process was killed
	return err
}
