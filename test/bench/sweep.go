package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// sweepTable answers: what does it cost to look for orphans of ten kinds in many members, after a start and later?
func sweepTable(ctx context.Context) error {
	f, err := hubOfSlices(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	s := &spread{cp: f.Local, targets: *sweepMembers, virtual: true, requests: &counter{}, more: []client.Object{
		&appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &batchv1.CronJob{}, &networkingv1.Ingress{},
	}}
	if err := s.createTargets(ctx); err != nil {
		return err
	}
	owner := configMap(metav1.NamespaceDefault, benchOwner)
	owner.Labels, owner.Data = map[string]string{"virtual": labelled}, state{"1", "1"}.data()
	if err := s.cp.Client().Create(ctx, owner); err != nil {
		return err
	}
	stop, err := s.start(ctx)
	if err != nil {
		return err
	}
	err = s.sweeps(ctx)
	return errors.Join(err, stop())
}

// sweeps measures until each kind was listed in each member, and then a minute in which only caches are looked at.
func (s *spread) sweeps(ctx context.Context) error {
	t := table{
		title:  fmt.Sprintf("Sweeps: %d kinds in each of %d members of the provider of namespaces, with 5 objects each", len(s.kinds()), s.targets),
		header: []string{"", "time", "lists", "lists per second", "other requests", headerCPU, "CPU per second"},
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"after a start, with the rollout", s.firstSweep},
		{"a minute of nothing", func(ctx context.Context) error {
			progressf("measuring a minute of nothing")
			return pause(ctx, time.Minute)
		}},
	} {
		cpu, err := measure.UsedCPU()
		if err != nil {
			return err
		}
		before, began := s.requests.now(), time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		took, sent := time.Since(began), s.requests.now().since(before)
		after, err := measure.UsedCPU()
		if err != nil {
			return err
		}
		t.add(step.name, took.Round(time.Second).String(), strconv.FormatInt(sent.lists, 10), fmt.Sprintf("%.1f", float64(sent.lists)/took.Seconds()),
			strconv.FormatInt(sent.reads+sent.hub+sent.members, 10), (after - cpu).Round(time.Millisecond).String(),
			fmt.Sprintf("%.1f ms", float64((after-cpu).Milliseconds())/took.Seconds()))
	}
	t.print()
	return nil
}
