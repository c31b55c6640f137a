package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
)

const (
	// mostTime is how much of a processor's time all overrides of a Replicator may take for one target. Most take a millisecond.
	mostTime = time.Second
	// mostHeld is how long they may take altogether, where the machine has little time for them.
	mostHeld = 5 * time.Second
	// mostMemory is how much memory they may take, in bytes.
	mostMemory = 128 << 20
)

var (
	errTooLong = fmt.Errorf("the overrides take longer than %s for one cluster", mostTime)
	errNoTime  = fmt.Errorf("%w: the machine has had no time for the overrides within %s", dependents.ErrPending, mostHeld)
	errEnded   = fmt.Errorf("the overrides take more than %d MiB of memory for one cluster, or somebody has ended their process", mostMemory>>20)
)

// child is a process of this program that evaluates overrides. It has no environment, and says nothing but answers.
type child struct {
	cmd  *exec.Cmd
	to   *os.File
	from *os.File
	gone chan struct{} // closed once it has ended
}

// startChild starts a child, which the caller ends.
func startChild(ctx context.Context) (*child, error) {
	c := &child{cmd: exec.Command(executable, evaluating), gone: make(chan struct{})} //nolint:noctx // it outlives all that a context is of
	c.cmd.Env, c.cmd.Dir = []string{}, "/"
	confined(c.cmd)
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close(), to.Close())
	}
	c.cmd.Stdin, c.cmd.Stdout, c.to, c.from = in, out, to, from
	err = c.cmd.Start()
	_, _ = in.Close(), out.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, to.Close(), from.Close())
	}
	go func() { // ends with the process
		_ = c.cmd.Wait() // it was killed, or has ended before
		close(c.gone)
	}()
	err = c.within(ctx, func() error {
		_, _, err := readFrame(c.from, 0)
		return err
	})
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *child) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

func (c *child) cpu() time.Duration { return cpuOf(c.cmd.Process.Pid) }

func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it has ended, if not
}

// end ends the process, and returns once it has.
func (c *child) end() {
	c.kill()
	<-c.gone
	_ = c.to.Close() // nothing is written to it any more
	_ = c.from.Close()
}

// within kills the process if something that it is to do takes too long. The error is the reason then.
func (c *child) within(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, mostHeld, errNoTime)
	defer cancel()
	var late error
	var watching sync.WaitGroup
	done := make(chan struct{})
	watching.Go(func() { late = c.watch(ctx, done) })
	err := do()
	close(done)
	if watching.Wait(); late != nil {
		return late
	}
	return err
}

// watch kills the process if it takes too long until something is done, and returns why.
func (c *child) watch(ctx context.Context, done <-chan struct{}) error {
	before := c.cpu()
	for left := mostTime; left > 0; left = mostTime - (c.cpu() - before) {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			c.kill()
			return context.Cause(ctx)
		case <-time.After(left):
		}
	}
	c.kill()
	return errTooLong
}

// shower returns an object as overrides see it. It is called for one after the other.
type shower func(obj *unstructured.Unstructured) (*unstructured.Unstructured, error)

// taker takes what came of one of several objects: it as JSON, or an error.
type taker func(i int, text []byte, err error)

// do does a job with objects, one after the other. If it returns an error, the process is to be ended, and what was not taken has got no answer.
func (c *child) do(ctx context.Context, j []byte, all []*unstructured.Unstructured, show shower, take taker) error {
	return c.within(ctx, func() error {
		if err := writeFrame(c.to, frameJob, j); err != nil {
			return errEnded
		}
		for i, obj := range all {
			seen, err := show(obj)
			if err != nil {
				take(i, nil, err)
				continue
			}
			if err := c.ask(seen, func(text []byte, err error) { take(i, text, err) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *child) ask(obj *unstructured.Unstructured, take func([]byte, error)) error {
	text, err := json.Marshal(obj)
	if err != nil {
		take(nil, err)
		return nil
	}
	if err := writeFrame(c.to, frameObject, text); err != nil {
		return errEnded
	}
	kind, text, err := readFrame(c.from, mostBytes)
	switch {
	case errors.Is(err, errTooMuch):
		return errTooMuch
	case err != nil:
		return errEnded
	case kind == frameError:
		take(nil, errors.New(string(text)))
	default:
		take(text, nil)
	}
	return nil
}
