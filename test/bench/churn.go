package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// churnAtOnce is how many members come and go side by side.
const churnAtOnce = 20

func churnTable(ctx context.Context) error { return inWorld(ctx, (*world).churnTable) }

// churnTable answers: what is left of members that came and went?
func (w *world) churnTable(ctx context.Context) error {
	t := table{
		title:  fmt.Sprintf("Churn: what is left after %d members came and went", *churnCycles),
		header: []string{"", "goroutines", "per cycle", columnHeap, "per cycle", "metric series", "took"},
	}
	var all []churned
	defer func() {
		for _, c := range all {
			_ = c.child.close()
		}
	}()
	for i, subject := range compared()[:min(2, len(compared()))] { // plain clusters come and do not go
		c, err := w.churn(ctx, subject, fmt.Sprintf("churn-%d", i))
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	progressf("waiting %s for what is still ending", *churnSettle)
	select {
	case <-time.After(*churnSettle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, c := range all {
		after, err := c.child.sample()
		if err != nil {
			return err
		}
		if err := c.child.profile("after-churn"); err != nil {
			return err
		}
		cycles := float64(*churnCycles)
		goroutines, bytes := after.Goroutines-c.before.Goroutines, after.Heap-c.before.Heap
		t.add(c.child.spec.Subject, fmt.Sprint(goroutines), fmt.Sprintf("%.2f", float64(goroutines)/cycles), kilobytes(bytes),
			fmt.Sprintf("%.1f KB", bytes/1024/cycles), fmt.Sprint(after.Series-c.before.Series), seconds(c.took))
	}
	t.print()
	return nil
}

// churned is a process whose members came and went.
type churned struct {
	child  *child
	before measure.Sample
	took   time.Duration
}

func (w *world) churn(ctx context.Context, subject, namespace string) (done churned, err error) {
	if err := w.createNamespace(ctx, namespace, 0); err != nil {
		return done, err
	}
	c, err := w.startChild(ctx, measure.Spec{Subject: subject, Namespace: namespace})
	if err != nil {
		return done, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	done.child = c
	// The first member brings what stays, and comes only once.
	if err := w.comeAndGo(ctx, c, 0, 1); err != nil {
		return done, err
	}
	if done.before, err = c.settled(ctx, quiet, 10*quiet); err != nil {
		return done, err
	}
	if err := c.profile("before-churn"); err != nil {
		return done, err
	}
	progressf("%s: %d members come and go", subject, *churnCycles)
	start := time.Now()
	for gone := 0; gone < *churnCycles; gone += churnAtOnce {
		if err := w.comeAndGo(ctx, c, 1+gone, min(churnAtOnce, *churnCycles-gone)); err != nil {
			return done, err
		}
	}
	done.took = time.Since(start)
	return done, nil
}

// comeAndGo engages members, waits until an object of each is reconciled, and disengages them. No member comes twice.
func (w *world) comeAndGo(ctx context.Context, c *child, from, members int) error {
	name := func(i int) string { return memberName(from + i) }
	if _, err := c.ask(measure.Request{Do: measure.Reset}); err != nil {
		return err
	}
	if err := each(ctx, members, func(ctx context.Context, i int) error {
		return w.createMember(ctx, c.spec.Namespace, name(i), w.at(from+i+1, w.config))
	}); err != nil {
		return err
	}
	if _, err := c.wait(members, engageTimeout(members)); err != nil {
		return err
	}
	if err := each(ctx, members, func(ctx context.Context, i int) error {
		return w.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.spec.Namespace, Name: name(i)}})
	}); err != nil {
		return err
	}
	a, err := c.ask(measure.Request{Do: measure.Engaged, Count: 0, AtMost: engageTimeout(members)})
	if err == nil && a.Count > 0 {
		err = fmt.Errorf("%s keeps %d members that were removed", c.spec.Subject, a.Count)
	}
	return err
}
