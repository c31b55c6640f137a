package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// replicas are processes of one program that share members. They are used by one goroutine at a time.
type replicas struct {
	w       *world
	spec    measure.Spec
	started int
	all     []*child // that run
}

// startReplicas starts n replicas, all at once, which have a new namespace for their Leases.
func (w *world) startReplicas(ctx context.Context, spec measure.Spec, n, members int) (*replicas, error) {
	progressf("%s: %d replicas are to share %d members", spec.Subject, n, members)
	w.shared++
	spec.Leases, spec.Replicas = fmt.Sprintf("leases-%d", w.shared), n
	if err := w.createNamespace(ctx, spec.Leases, 0); err != nil {
		return nil, err
	}
	r := &replicas{w: w, spec: spec}
	for range n {
		if err := r.start(ctx); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

// share starts n replicas, and waits until they share so many members that Secrets describe. It returns how many each has.
func (w *world) share(ctx context.Context, spec measure.Spec, n, members int) (*replicas, []int, error) {
	spec.Subject, spec.Namespace = subjectSharded, fmt.Sprintf("fleet-of-%d", members)
	if err := w.createNamespace(ctx, spec.Namespace, members); err != nil {
		return nil, nil, err
	}
	r, err := w.startReplicas(ctx, spec, n, members)
	if err != nil {
		return nil, nil, err
	}
	shares, err := r.calm(ctx, members)
	if err != nil {
		return nil, nil, errors.Join(err, r.close())
	}
	return r, shares, nil
}

// start starts one more.
func (r *replicas) start(ctx context.Context) error {
	spec := r.spec
	spec.Replica = fmt.Sprintf("replica-%d", r.started)
	c, err := r.w.startChild(ctx, spec)
	if err != nil {
		return err
	}
	r.started++
	r.all = append(r.all, c)
	return nil
}

func (r *replicas) close() (err error) {
	for _, c := range r.all {
		err = errors.Join(err, c.close())
	}
	return err
}

// leave asks the i-th replica to end (SIGTERM), and returns once it has.
func (r *replicas) leave(i int) error {
	c := r.remove(i)
	err := c.cmd.Process.Signal(syscall.SIGTERM)
	if err == nil {
		_, err = c.ask(measure.Request{Do: measure.End, AtMost: leaveTimeout})
	}
	return errors.Join(err, c.close())
}

// kill kills the i-th replica (SIGKILL).
func (r *replicas) kill(i int) error { return r.remove(i).close() }

func (r *replicas) remove(i int) *child {
	c := r.all[i]
	r.all = slices.Delete(r.all, i, i+1)
	return c
}

const (
	leaveTimeout = time.Minute
	// calmFor is longer than replicas wait after one has joined, until they balance.
	calmFor = 8 * time.Second
	// calmLooks is how often that is looked at.
	calmLooks = 250 * time.Millisecond
)

// calmTimeout bounds how long it may take until n members are shared, of which the peer takes one after the other.
func calmTimeout(n int) time.Duration { return 2*time.Minute + time.Duration(n)*20*time.Millisecond }

var errNotCalm = errors.New("something still changes")

// calm waits until the replicas know each other, work on all members, and nothing has changed for a while. It returns on how many
// members each works.
func (r *replicas) calm(ctx context.Context, members int) ([]int, error) {
	look := time.NewTicker(calmLooks)
	defer look.Stop()
	over := time.After(calmTimeout(members))
	var shares []int
	var since time.Time
	for {
		now, known, err := r.look()
		if err != nil {
			return nil, err
		}
		if !slices.Equal(now, shares) || !known || sum(now) != members {
			shares, since = now, time.Now()
		}
		if time.Since(since) >= calmFor {
			return shares, nil
		}
		select {
		case <-look.C:
		case <-over:
			return shares, fmt.Errorf("%w: the replicas of %s work on %v of %d members after %s (all know each other: %t)",
				errNotCalm, r.spec.Subject, shares, members, calmTimeout(members), known)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// look returns on how many members each works now, and whether each knows of as many replicas as there are.
func (r *replicas) look() (shares []int, known bool, err error) {
	known = true
	for _, c := range r.all {
		a, err := c.ask(measure.Request{Do: measure.Look})
		if err != nil {
			return nil, false, err
		}
		shares = append(shares, a.Count)
		known = known && a.Replicas == len(r.all)
	}
	return shares, known, nil
}

// seen returns when each item was seen since the last reset, in order.
func (r *replicas) seen() ([]int64, error) {
	answers, err := r.ask(measure.Request{Do: measure.Wait})
	if err != nil {
		return nil, err
	}
	var all []int64
	for i := range answers {
		all = append(all, answers[i].Seen...)
	}
	slices.Sort(all)
	return all, nil
}

func (r *replicas) ask(req measure.Request) ([]measure.Answer, error) {
	all := make([]measure.Answer, len(r.all))
	for i, c := range r.all {
		var err error
		if all[i], err = c.ask(req); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func sum(all []int) (n int) {
	for _, one := range all {
		n += one
	}
	return n
}

// spreadOf writes the least and the most of some shares to their mean.
func spreadOf(shares []int) string {
	mean := float64(sum(shares)) / float64(len(shares))
	return fmt.Sprintf("%s, %s", ratio(float64(slices.Min(shares)), mean), ratio(float64(slices.Max(shares)), mean))
}
