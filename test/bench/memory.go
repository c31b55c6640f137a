package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// fleetSubjects are what is compared in fleets. Ours is the first, the peer the second.
var fleetSubjects = []string{subjectOurs, subjectPeer, subjectClusters}

func compared() []string {
	if *oursAlone {
		return fleetSubjects[:1]
	}
	return fleetSubjects
}

// toOurs is the head of the column that compares.
const toOurs = "to ours"

// quiet is how long the goroutines of a process must not become fewer.
const quiet = 2 * time.Second

// engageTimeout bounds how long n members may take, of which the peer connects ten a second.
func engageTimeout(n int) time.Duration {
	return 30*time.Second + time.Duration(n)*500*time.Millisecond
}

// membersTable answers: what does an idle member with one watched type cost?
func membersTable(ctx context.Context) error { return inWorld(ctx, (*world).membersTable) }

func (w *world) membersTable(ctx context.Context) (err error) {
	bases := map[string]measure.Sample{}
	for _, subject := range compared() {
		if bases[subject], _, err = w.idle(ctx, subject, 0); err != nil {
			return err
		}
	}
	t := table{
		title: "Memory: an idle member with one watched type (heap and RSS after garbage collection, less those of no member)",
		header: []string{
			columnMembers, "", columnHeap, "RSS", "of that stacks", "goroutines", "heap to ours", "RSS to ours", "goroutines to ours", "engaged after",
		},
	}
	for _, members := range memorySizes.all {
		var first measure.Sample
		for i, subject := range compared() {
			sample, took, err := w.idle(ctx, subject, members)
			if err != nil {
				return err
			}
			per := perMember(sample, bases[subject], members)
			if i == 0 {
				first = per
			}
			goroutines := float64(sample.Goroutines-bases[subject].Goroutines) / float64(members)
			ours := float64(first.Goroutines) / float64(members)
			t.add(fmt.Sprint(members), subject, kilobytes(per.Heap), kilobytes(per.RSS), kilobytes(per.Stacks), fmt.Sprintf("%.1f", goroutines),
				ratio(per.Heap, first.Heap), ratio(per.RSS, first.RSS), ratio(goroutines, ours), seconds(took))
		}
	}
	t.print()
	return nil
}

// perMember leaves the number of goroutines as it is for all members.
func perMember(s, base measure.Sample, members int) measure.Sample {
	n := float64(members)
	return measure.Sample{
		Heap: (s.Heap - base.Heap) / n, RSS: (s.RSS - base.RSS) / n, Stacks: (s.Stacks - base.Stacks) / n,
		Goroutines: s.Goroutines - base.Goroutines,
	}
}

// idle samples a process with so many members, after all were engaged and reconciled, which took so long.
func (w *world) idle(ctx context.Context, subject string, members int) (s measure.Sample, took time.Duration, err error) {
	c, took, err := w.engage(ctx, subject, members)
	if err != nil {
		return s, 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if s, err = c.settled(ctx, quiet, 10*quiet); err != nil {
		return s, took, err
	}
	return s, took, c.profile(fmt.Sprintf("%d-members", members))
}

// engage starts a process with so many members, whose Secrets are there already, and waits until all were reconciled.
func (w *world) engage(ctx context.Context, subject string, members int) (*child, time.Duration, error) {
	namespace := fmt.Sprintf("fleet-of-%d", members)
	if err := w.createNamespace(ctx, namespace, members); err != nil {
		return nil, 0, err
	}
	return w.engageIn(ctx, subject, namespace, members)
}

// engageIn is engage for Secrets in a namespace.
func (w *world) engageIn(ctx context.Context, subject, namespace string, members int) (*child, time.Duration, error) {
	progressf("%s: engaging %d members", subject, members)
	c, err := w.startChild(ctx, measure.Spec{Subject: subject, Namespace: namespace})
	if err != nil {
		return nil, 0, err
	}
	a, err := c.wait(members, engageTimeout(members))
	if err != nil {
		return nil, 0, errors.Join(err, c.close())
	}
	return c, time.Duration(a.Last - a.Started), nil
}

func kilobytes(bytes float64) string { return fmt.Sprintf("%.0f KB", bytes/1024) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
