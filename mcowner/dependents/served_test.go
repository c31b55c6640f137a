package dependents

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
)

// TestWhoseDependentsAMemberThatLeavesWaitsFor: those of owners that may be asked for, or will be. Others' may be anything.
func TestWhoseDependentsAMemberThatLeavesWaitsFor(t *testing.T) {
	t.Parallel()
	c := newAccounting(t, config{
		fleet: "payments", name: "copier", decommissioned: []mcowner.ClusterID{{Name: "decommissioned", UID: "1"}},
	}, &plan{}).engine
	c.owner = remote.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Proto: &corev1.ConfigMap{}}
	var err error
	if c.collector, err = c.newCollector(); err != nil {
		t.Fatal(err)
	}
	(&accounting{engine: c}).late("late")
	(&accounting{engine: c}).late("decommissioned")
	for name, tc := range map[string]struct {
		change func(*mcowner.Reference)
		want   bool
	}{
		"in the local cluster":                    {func(*mcowner.Reference) {}, true},
		"in a cluster that may be reported yet":   {func(r *mcowner.Reference) { r.Cluster = "soon" }, true},
		"in a cluster that was not for long":      {func(r *mcowner.Reference) { r.Cluster = "late" }, false},
		"in a cluster that is said to be no more": {func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "decommissioned", "1" }, true},
		"in another one that had its name":        {func(r *mcowner.Reference) { r.Cluster, r.ClusterUID = "decommissioned", "2" }, false},
		"of another installation":                 {func(r *mcowner.Reference) { r.Fleet = "other" }, false},
		"of another controller":                   {func(r *mcowner.Reference) { r.Manager = "other" }, false},
		"of another kind":                         {func(r *mcowner.Reference) { r.Kind = "Secret" }, false},
	} {
		owner := mcowner.Reference{Fleet: "payments", Manager: "copier", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "1"}
		tc.change(&owner)
		if got := c.isServed(t.Context(), owner); got != tc.want {
			t.Errorf("for that of an owner %s it waits: %t", name, got)
		}
	}
}
