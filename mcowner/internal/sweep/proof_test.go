package sweep

import (
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleet-runtime/fleet-runtime/mcowner"
	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/record"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestAnOwnersRecordSaysWhereItMayHaveDependents, and nothing is taken from an owner whose record says nothing.
func TestAnOwnersRecordSaysWhereItMayHaveDependents(t *testing.T) {
	t.Parallel()
	keys := record.NewKeys("payments", "copier")
	ref := mcowner.Reference{Fleet: "payments", Manager: "copier"}
	byHand := mcowner.Reference{Fleet: "payments"}
	noted := func(owner *corev1.ConfigMap) {
		keys.Write(owner, record.Record{Sites: []record.Site{{Name: "east"}}}, true)
	}
	s := &Sweeper{}
	cases := map[string]struct {
		change func(*corev1.ConfigMap)
		ref    mcowner.Reference
		want   bool
	}{
		"Noted elsewhere":               {noted, ref, false},
		"No record":                     {func(*corev1.ConfigMap) {}, ref, true},
		"No manager":                    {noted, byHand, true},
		"Nowhere, and with a finalizer": {func(cm *corev1.ConfigMap) { cm.Finalizers = []string{keys.Finalizer} }, ref, true},
		"Without the finalizer":         {func(cm *corev1.ConfigMap) { noted(cm); cm.Finalizers = nil }, ref, true},
		"Being deleted":                 {func(cm *corev1.ConfigMap) { noted(cm); cm.DeletionTimestamp = &metav1.Time{} }, ref, false},
		"What cannot be read":           {func(cm *corev1.ConfigMap) { noted(cm); cm.Annotations[keys.Clusters] = "{" }, ref, true},
		"What is noted of another owner": {func(cm *corev1.ConfigMap) {
			record.NewKeys("payments", "other").Write(cm, record.Record{Sites: []record.Site{{Name: "east"}}}, true)
		}, ref, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := &corev1.ConfigMap{}
			tc.change(owner)
			if got := s.isPlaced(t.Context(), owner, tc.ref, "west", nil); got != tc.want {
				t.Errorf("there may be some: %t, want %t", got, tc.want)
			}
			if !s.isPlaced(t.Context(), owner, tc.ref, "east", nil) {
				t.Error("nothing may be there in the cluster that is noted")
			}
		})
	}
	deleted := metav1.Now()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}}
	noted(owner)
	if !s.isPlaced(t.Context(), owner, ref, "west", nil) {
		t.Error("an owner that is being deleted may have dependents anywhere, as its record shrinks")
	}
}

// TestOwnersInAnotherClusterAreToldOfOnce, and again when there are more or fewer.
func TestOwnersInAnotherClusterAreToldOfOnce(t *testing.T) {
	t.Parallel()
	lines := 0
	s := &Sweeper{log: funcr.New(func(string, string) { lines++ }, funcr.Options{}), metrics: newSweepMetrics("told")}
	c := &sweepMemory{name: "member"}
	for _, step := range []struct{ strange, want int }{{3, 1}, {3, 1}, {4, 2}, {0, 2}, {4, 3}} {
		now := map[mcreconcile.ClusterName]int{}
		if step.strange > 0 {
			now["owners"] = step.strange
		}
		c.tallies = map[schema.GroupVersionKind]tally{{Kind: "ConfigMap"}: {strange: now}}
		if s.tell(c, nil); lines != step.want {
			t.Errorf("after a sweep with %d there are %d lines, want %d", step.strange, lines, step.want)
		}
	}
}
