package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Heads of columns.
const (
	columnHeap     = "heap"
	columnQueue    = "queue" // names the peer
	columnMedian   = "median"
	columnLast     = "last"
	columnMembers  = "members"
	columnReplicas = "replicas"
)

// queue is what the peers have in common.
type queue = workqueue.TypedRateLimitingInterface[mcreconcile.Request]

// peers are the queues that are compared. Ours is the first.
var peers = []struct {
	name string
	make func() queue
}{
	{"fleet-runtime", func() queue { return mcqueue.New("bench", mcqueue.Options[mcreconcile.Request]{}) }},
	{"controller-runtime", func() queue { return priorityqueue.New[mcreconcile.Request]("bench") }},
	{"client-go", func() queue {
		limiter := workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]()
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[mcreconcile.Request]{Name: "bench"})
	}},
}

// requests makes n requests, spread over clusters.
func requests(n, clusters int) []mcreconcile.Request {
	out := make([]mcreconcile.Request, n)
	for i := range out {
		out[i].ClusterName = mcreconcile.ClusterName(fmt.Sprintf("cluster-%d", i%clusters))
		out[i].Namespace, out[i].Name = "default", fmt.Sprintf("object-%d", i)
	}
	return out
}

func queueTables(context.Context) error {
	throughputTable()
	latencyTable()
	memoryTable()
	pausedTable()
	return nil
}

// throughputTable answers: what does it cost to take a request, finish it and add it again, while 10,000 others wait?
func throughputTable() {
	t := table{title: "Queue: add, get and done of one request, with 10,000 queued", header: []string{"clusters", "workers"}}
	for _, p := range peers {
		t.header = append(t.header, p.name)
	}
	t.header = append(t.header, "to controller-runtime", "to our one cluster")
	one := map[int]float64{}
	for _, clusters := range []int{1, 10, 1000, 10_000} {
		for _, workers := range []int{1, 16} {
			cells := make([]string, 2+len(peers), 4+len(peers))
			cells[0], cells[1] = fmt.Sprint(clusters), fmt.Sprint(workers)
			costs := make([]float64, len(peers))
			for i, p := range peers {
				costs[i] = median(3, func() float64 { return throughput(p.make, clusters, workers) })
				cells[i+2] = perItem(costs[i])
			}
			if clusters == 1 {
				one[workers] = costs[0]
			}
			t.add(append(cells, ratio(costs[0], costs[1]), ratio(costs[0], one[workers]))...)
		}
	}
	t.print()
}

// throughput returns the nanoseconds per request.
func throughput(newQueue func() queue, clusters, workers int) float64 {
	const queued = 10_000
	result := testing.Benchmark(func(b *testing.B) {
		b.Helper()
		q := newQueue()
		defer q.ShutDown()
		for _, r := range requests(queued, clusters) {
			q.Add(r)
		}
		b.ResetTimer()
		var all sync.WaitGroup
		for w := range workers {
			share := b.N / workers
			if w == 0 {
				share += b.N % workers
			}
			all.Go(func() {
				for range share {
					r, _ := q.Get()
					q.Add(r)
					q.Done(r)
				}
			})
		}
		all.Wait()
		b.StopTimer()
	})
	return float64(result.T) / float64(result.N)
}

// latencyTable answers: how long after an add does an idle worker have the request?
func latencyTable() {
	t := table{title: "Queue: from add to get, one idle worker (median)", header: []string{columnQueue, "latency", "to controller-runtime"}}
	costs := make([]float64, len(peers))
	for i, p := range peers {
		costs[i] = latency(p.make)
	}
	for i, p := range peers {
		t.add(p.name, perItem(costs[i]), ratio(costs[i], costs[1]))
	}
	t.print()
}

func latency(newQueue func() queue) float64 {
	const rounds = 20_000
	q := newQueue()
	defer q.ShutDown()
	got := make(chan time.Time)
	go func() {
		for {
			r, shutdown := q.Get()
			if shutdown {
				return
			}
			now := time.Now()
			q.Done(r)
			got <- now
		}
	}()
	took := make([]time.Duration, 0, rounds)
	for _, r := range requests(rounds, 1) {
		start := time.Now()
		q.Add(r)
		took = append(took, (<-got).Sub(start))
	}
	slices.Sort(took)
	return float64(took[rounds/2])
}

// memoryTable answers: how many bytes does a queued request take, besides the strings in it?
func memoryTable() {
	t := table{title: "Queue: bytes per queued request (100,000 of 1000 clusters)", header: []string{columnQueue, "bytes", "to controller-runtime"}}
	costs := make([]float64, len(peers))
	for i, p := range peers {
		costs[i] = bytesPerRequest(p.make)
	}
	for i, p := range peers {
		t.add(p.name, fmt.Sprintf("%.0f", costs[i]), ratio(costs[i], costs[1]))
	}
	t.print()
}

func bytesPerRequest(newQueue func() queue) float64 {
	const n = 100_000
	all := requests(n, 1000)
	before := heap()
	q := newQueue()
	for _, r := range all {
		q.Add(r)
	}
	for q.Len() < n { // controller-runtime's buffers adds
		runtime.Gosched()
	}
	bytes := heap() - before
	runtime.KeepAlive(all)
	q.ShutDown()
	return bytes / n
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// pausedTable answers: what do 10,000 clusters that cannot be reached cost the one that can?
func pausedTable() {
	t := table{title: "Queue: add, get and done of one request beside paused clusters", header: []string{"paused clusters", "cost", "to none paused"}}
	var none float64
	for _, paused := range []int{0, 10_000} {
		cost := median(3, func() float64 { return besidePaused(paused) })
		if paused == 0 {
			none = cost
		}
		t.add(fmt.Sprint(paused), perItem(cost), ratio(cost, none))
	}
	t.print()
}

func besidePaused(paused int) float64 {
	result := testing.Benchmark(func(b *testing.B) {
		b.Helper()
		q := mcqueue.New("bench", mcqueue.Options[mcreconcile.Request]{})
		defer q.ShutDown()
		for _, r := range requests(paused, max(paused, 1)) {
			q.Pause(r.ClusterName)
			q.Add(r)
		}
		one := mcreconcile.Request{ClusterName: "reachable"}
		b.ResetTimer()
		for range b.N {
			q.Add(one)
			r, _ := q.Get()
			q.Done(r)
		}
		b.StopTimer()
	})
	return float64(result.T) / float64(result.N)
}

// median measures several times.
func median(times int, measure func() float64) float64 {
	all := make([]float64, times)
	for i := range all {
		all[i] = measure()
	}
	slices.Sort(all)
	return all[times/2]
}
