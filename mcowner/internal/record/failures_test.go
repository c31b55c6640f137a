package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestOfManyFailuresAFewAreNamed, and the same ones however often they are read and written.
func TestOfManyFailuresAFewAreNamed(t *testing.T) {
	t.Parallel()
	names := make([]mcreconcile.ClusterName, 3*MostFailures)
	for i := range names {
		names[i] = mcreconcile.ClusterName(fmt.Sprintf("member-%03d", i))
	}
	f := NewFailures("1", names, slices.Clone(names)...)
	owner := &corev1.ConfigMap{}
	for range 3 {
		if f == nil || len(f.Clusters) != MostFailures || len(f.Begun) != MostFailures || !slices.IsSorted(f.Clusters) || f.Revision != "1" {
			t.Fatalf("the failures are %+v", f)
		}
		keys.Write(owner, Record{Failures: f}, true)
		f = keys.Read(owner).Failures
	}
	if f := NewFailures("1", nil, "a"); f != nil {
		t.Errorf("there is no failure, and these are noted: %+v", f)
	}
}

// TestFailuresThatSomebodyHasForgedCostLittle, and say nothing of what cannot be.
func TestFailuresThatSomebodyHasForgedCostLittle(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		``: 0, `{`: 0, `[]`: 0, `{}`: 0, `null`: 0, `{"clusters":"a"}`: 0,
		`{"clusters":["a","a"]}`: 1, `{"begun":["a"]}`: 0, `{"clusters":["a"],"begun":["b","c","` + strings.Repeat("x", MostName+1) + `"]}`: 3,
		`{"clusters":["b","a"],"others":3}`:                        2,
		`{"clusters":["` + strings.Repeat("x", MostName+1) + `"]}`: 0,
	} {
		owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{keys.Failures: text}}}
		got := 0
		if f := keys.Read(owner).Failures; f != nil {
			got = len(f.Clusters) + len(f.Begun)
		}
		if got != want || keys.On(owner) {
			t.Errorf("%q says that %d clusters have failed or were begun, want %d", text, got, want)
		}
	}
}
