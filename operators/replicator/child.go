package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
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
	errNoTime  = fmt.Errorf("the machine has had no time for the overrides within %s: %w", mostHeld, context.DeadlineExceeded)
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

// input is an object that is sent to a child, as JSON.
type input struct {
	text   []byte
	secret bool
}

// answer is what comes back for it.
type answer struct {
	text []byte
	err  error
}

// do does a job with objects, one after the other. The process is to be ended if there is an error, and objects after the last answer got none.
func (c *child) do(ctx context.Context, j []byte, all []input) (answers []answer, _ error) {
	err := c.within(ctx, func() error {
		if err := writeFrame(c.to, frameJob, j); err != nil {
			return errEnded
		}
		for _, in := range all {
			a, err := c.ask(in)
			if err != nil {
				return err
			}
			answers = append(answers, a)
		}
		return nil
	})
	return answers, err
}

func (c *child) ask(in input) (answer, error) {
	kind := frameObject
	if in.secret {
		kind = frameSecret
	}
	if err := writeFrame(c.to, kind, in.text); err != nil {
		return answer{}, errEnded
	}
	kind, content, err := readFrame(c.from, mostBytes)
	switch {
	case errors.Is(err, errTooMuch):
		return answer{}, errTooMuch
	case err != nil:
		return answer{}, errEnded
	case kind == frameError:
		return answer{err: errors.New(string(content))}, nil
	}
	return answer{text: content}, nil
}
