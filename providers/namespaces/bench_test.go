package namespaces_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleet-runtime/fleet-runtime/mcbuilder"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/providers/namespaces"
)

// BenchmarkMembers asks what a namespace costs as a member: one controller of ConfigMaps, one ConfigMap in each.
//
//	go test -run '^$' -bench Members -timeout 30m ./providers/namespaces/
//
// It reports the time until all are reconciled, heap and goroutines for each member, and the time from a write to the
// reconcile of it, as median and maximum, with as many members as the name says.
func BenchmarkMembers(b *testing.B) {
	for _, members := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			cp := mctest.Start(b, mctest.Options{}).Local
			fill(b, cp, members)
			for b.Loop() {
				measure(b, cp, members)
			}
		})
	}
}

// fill creates namespaces with a ConfigMap each.
func fill(b *testing.B, cp *mctest.ControlPlane, count int) {
	b.Helper()
	config := cp.Config()
	config.QPS = -1
	writer, err := client.New(config, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var group errgroup.Group
	group.SetLimit(20)
	for i := range count {
		group.Go(func() error {
			name := fmt.Sprintf("team-%d", i)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}}}
			if err := writer.Create(b.Context(), ns); err != nil {
				return err
			}
			return writer.Create(b.Context(), configMap(name, "x"))
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func measure(b *testing.B, cp *mctest.ControlPlane, members int) {
	b.Helper()
	heap, goroutines := footprint()
	m := newManagerOf(b, cp.Config(), namespaces.Provider{})
	reconciled := make(chan mcreconcile.Request, 2*members)
	err := mcbuilder.ControllerManagedBy(m).For(&corev1.ConfigMap{}).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (reconcile.Result, error) {
			reconciled <- req
			return reconcile.Result{}, nil
		}))
	if err != nil {
		b.Fatal(err)
	}
	begin := time.Now()
	stop := m.run()
	defer stop()
	await := func(count int) {
		for range count {
			select {
			case <-reconciled:
			case <-time.After(patience):
				b.Fatal("not all were reconciled")
			}
		}
	}
	await(members)
	b.ReportMetric(time.Since(begin).Seconds(), "s/all")

	heapNow, goroutinesNow := footprint()
	b.ReportMetric(float64(heapNow-heap)/float64(members)/1000, "KB/member")
	b.ReportMetric(float64(goroutinesNow-goroutines)/float64(members), "goroutines/member")

	const writes = 200
	took := make([]time.Duration, writes)
	for i := range took {
		patch := fmt.Sprintf(`{"data":{"at":"%d"}}`, time.Now().UnixNano())
		name := fmt.Sprintf("team-%d", i*members/writes)
		begin := time.Now()
		if err := cp.Client().Patch(b.Context(), configMap(name, "x"), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			b.Fatal(err)
		}
		await(1)
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[writes/2].Microseconds())/1000, "ms/event")
	b.ReportMetric(float64(took[writes-1].Microseconds())/1000, "ms/slowest")
}

// footprint returns the heap in bytes, after a collection, and the number of goroutines.
func footprint() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC() // what the first has found to finalize
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), runtime.NumGoroutine()
}
