package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mcowner/dependents"
	"github.com/fleet-runtime/fleet-runtime/operators/replicator/v1alpha1"
)

// TestATenantWhoseOverridesTakeLongLeavesWorkersToOthers, and to itself where it has no overrides.
func TestATenantWhoseOverridesTakeLongLeavesWorkersToOthers(t *testing.T) {
	t.Parallel()
	c := &controller{}
	var ends [mostTurns]func()
	for i := range ends {
		end, err := c.turns.take(t.Context(), "slow")
		must(t, err)
		ends[i] = end
	}
	patch := []v1alpha1.Override{{MergePatch: rawJSON(`{"data":{"a":"b"}}`)}}
	desired := func(namespace string, overrides []v1alpha1.Override) error {
		r := replicator("r", nil, configMap("plain"))
		r.Namespace, r.Spec.Overrides = namespace, overrides
		all, err := c.desired(t.Context(), r, dependents.Target{Cluster: "east"})
		if len(all) != 1 && err == nil {
			t.Errorf("namespace %s has %d objects", namespace, len(all))
		}
		return err
	}
	if err := desired("slow", patch); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "namespace slow") {
		t.Errorf("one more of the tenant: %v", err)
	}
	if err := errors.Join(desired("slow", nil), desired("other", patch)); err != nil {
		t.Errorf("what has no part in it: %v", err)
	}
	ends[0]()
	if err := desired("slow", patch); err != nil {
		t.Errorf("after a turn: %v", err)
	}
	for _, end := range ends[1:] {
		end()
	}
	if len(c.turns.of) > 0 {
		t.Errorf("%d tenants are known when nobody has a turn", len(c.turns.of))
	}
}

// TestTurnsOfManyTenantsEnd when hundreds are taken at once.
func TestTurnsOfManyTenantsEnd(t *testing.T) {
	t.Parallel()
	var all turns
	var running sync.WaitGroup
	for i := range 400 {
		running.Go(func() {
			if end, err := all.take(t.Context(), string(rune('a'+i%20))); err == nil {
				end()
			}
		})
	}
	running.Wait()
	if len(all.of) > 0 {
		t.Errorf("%d tenants are known when nobody has a turn", len(all.of))
	}
}
