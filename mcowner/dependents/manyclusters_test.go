package dependents

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mcowner/internal/remote"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// TestWhatAnAccountCostsGrowsWithTheClustersAlone, not with their square: it is kept under the lock of the owner, and of ten thousand
// clusters each asks for its part.
func TestWhatAnAccountCostsGrowsWithTheClustersAlone(t *testing.T) {
	t.Parallel()
	costs := func(clusters int) time.Duration {
		names := make([]mcreconcile.ClusterName, clusters)
		for i := range names {
			names[i] = mcreconcile.ClusterName(fmt.Sprintf("cluster-of-the-fleet-%06d", i))
		}
		a := newAccounting(t, config{}, &plan{targets: names}, names...)
		start := time.Now()
		for _, name := range names {
			if v, _ := a.o.begin(name); len(v.sites) != 1 || !a.o.concerns(name) {
				t.Fatalf("%s is not in the record", name)
			}
			a.o.partLocked(name).done = true
		}
		a.mustOpen(t)
		a.settle()
		return time.Since(start)
	}
	var times float64
	for range 5 { // the machine may be busy with something else meanwhile
		few := costs(500)
		if times = float64(costs(20_000)) / float64(few); times < 200 {
			return
		}
	}
	t.Errorf("40 times as many clusters take %.0f times as long", times)
}

// TestAnAccountLooksAtNoObject: of ten thousand dependents of an owner, in a thousand clusters, none is read or hashed again because one cluster
// has news, or the owner was changed. What is done about objects is done in the work on their cluster.
func TestAnAccountLooksAtNoObject(t *testing.T) { //nolint:paralleltest // it counts allocations
	const clusters = 1000
	for name, news := range map[string]func(*accounting, report){
		"a cluster has news": func(a *accounting, r report) {
			r.Err = fmt.Errorf("attempt %d", a.o.parts["cluster-0500"].runs)
			a.o.report("cluster-0500", view{plan: a.o.plan, targeted: true}, r)
		},
		"the owner was changed": func(a *accounting, _ report) {
			now := *a.o.plan
			a.engine.ledger.replan(a.o, &now, testKeys)
		},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			allocated := func(objects int) float64 {
				a, each := newCrowded(t, clusters, objects)
				home := remote.Session{Cluster: a.hears(t)}
				account := func() {
					news(a, each)
					if _, err := a.engine.account(t.Context(), a.o, home); err != nil {
						t.Fatal(err)
					}
				}
				account() // the first one tells of all clusters
				return testing.AllocsPerRun(5, account)
			}
			none, ten := allocated(0), allocated(10)
			if more := ten - none; more > clusters {
				t.Errorf("an account allocates %.0f times without objects, and %.0f times more with %d", none, more, 10*clusters)
			}
		})
	}
}

// newCrowded returns what keeps the account of an owner that has so many clusters, and so many objects in each.
func newCrowded(t *testing.T, clusters, objects int) (a *accounting, each report) {
	t.Helper()
	names := make([]mcreconcile.ClusterName, clusters)
	for i := range names {
		names[i] = mcreconcile.ClusterName(fmt.Sprintf("cluster-%04d", i))
	}
	status := func(context.Context, client.Object, []Result) error { return nil }
	a = newAccounting(t, config{status: status}, &plan{targets: names}, names...)
	each.Targeted, each.kinds = true, []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	for i := range objects {
		each.Objects = append(each.Objects, ObjectResult{State: Unchanged, Object: &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: "1", ResourceVersion: "1"}, Data: map[string]string{"value": strings.Repeat("x", 1000)},
		}})
	}
	for _, name := range names {
		r := each
		r.Objects = slices.Clone(each.Objects)
		a.o.report(name, view{plan: a.o.plan, targeted: true}, r)
	}
	return a, each
}
