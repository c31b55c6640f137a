package demo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

func requestFor(cluster mcreconcile.ClusterName, name string) mcreconcile.Request {
	key := types.NamespacedName{Namespace: "ns", Name: name}
	return mcreconcile.Request{ClusterName: cluster, Request: reconcile.Request{NamespacedName: key}}
}

func TestBoardSaysWhatHappenedLast(t *testing.T) {
	b := newBoard()
	const ready = string(fleet.Ready)
	events := []func(){
		func() {
			b.note(fleet.Status{Name: "m", State: fleet.Connecting, Reason: "Refused", Message: "nobody is there"})
		},
		func() { b.note(fleet.Status{Name: "m", State: fleet.Ready}) },
		func() { b.reconciled(requestFor("m", "a"), "1") },
		func() { b.reconciled(requestFor("m", "a"), "1") },
		func() { b.reconciled(requestFor("m", "a"), "2") },
		func() { b.reconciled(requestFor("m", "b"), "3") },
		func() { b.reconciled(requestFor("m", "a"), "") },
		func() { b.note(fleet.Status{Name: "m", State: fleet.Ready}) },
		func() { b.note(fleet.Status{Name: "m", State: stateGone}) },
	}
	got := make([]row, len(events))
	for i, happens := range events {
		happens()
		rows, _ := b.rows()
		got[i] = rows[0]
	}
	want := []row{
		{state: "Connecting (Refused)", event: "is Connecting: nobody is there"},
		{state: ready, event: "is Ready"},
		{state: ready, objects: 1, reconciles: 1, event: "found ns/a"},
		{state: ready, objects: 1, reconciles: 2, event: "unchanged ns/a"},
		{state: ready, objects: 1, reconciles: 3, event: "changed ns/a"},
		{state: ready, objects: 2, reconciles: 4, event: "found ns/b"},
		{state: ready, objects: 1, reconciles: 5, event: "removed ns/a"},
		{state: ready, objects: 1, reconciles: 5, event: "removed ns/a"},
		{state: "Gone", objects: 0, reconciles: 5, event: "is Gone"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{}), cmpopts.IgnoreFields(row{}, "name", "at")); diff != "" {
		t.Errorf("rows (-want, +got):\n%s", diff)
	}
}

// TestOnlyItsOwnerTellsOfAMember: others know that they do not own it, and what one of before says may be late.
func TestOnlyItsOwnerTellsOfAMember(t *testing.T) {
	b := newBoard()
	b.note(fleet.Status{Name: "m", State: fleet.NotOwned, Owner: "one"})
	b.note(fleet.Status{Name: "m", State: fleet.Ready, Owner: "two", Epoch: 2})
	b.note(fleet.Status{Name: "m", State: fleet.Draining, Owner: "one", Epoch: 1})
	shows := func(want row) {
		t.Helper()
		rows, _ := b.rows()
		if diff := cmp.Diff([]row{want}, rows, cmp.AllowUnexported(row{}), cmpopts.IgnoreFields(row{}, "name", "at")); diff != "" {
			t.Errorf("rows (-want, +got):\n%s", diff)
		}
	}
	shows(row{state: "Ready", owner: "two", event: "is Ready"})
	b.ended("one", "has ended")
	shows(row{state: "Ready", owner: "two", event: "is Ready"})
	b.ended("two", "was killed")
	shows(row{state: "NotOwned", event: "two was killed"})
}

func TestAStepThatDoesNotComeTrueSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, stop := fleettest.Run(t, fleet.Options{})
		defer stop()
		if err := f.Set(fleet.Member{Name: "m", Err: errors.New("no kubeconfig")}); err != nil {
			t.Fatal(err)
		}
		b := newBoard()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go follow(ctx, f.Fleet, b)
		begun := time.Now()
		// As long as reconciles go on, there is hope.
		time.AfterFunc(patience/2, func() { b.reconciled(requestFor("other", "a"), "1") })

		s := &scene{setting: &setting{}, board: b, fleet: f.Fleet}
		err := s.wait(t.Context(), all(is("other", stateGone), is("m", fleet.Ready)))
		want := "waited 1m0s in vain until other is Gone, and m is Ready."
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("wait() = %v, want %s", err, want)
		}
		if took := time.Since(begun); took != patience*3/2 {
			t.Errorf("wait() gave up after %s, want %s", took, patience*3/2)
		}
	})
}
