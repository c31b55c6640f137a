package mcsource

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// Poll asks a function for requests, for each cluster by itself: when it is engaged, and then at an interval.
type Poll = TypedPoll[mcreconcile.Request]

// TypedPoll is a [Poll] for other types of requests.
type TypedPoll[request comparable] struct {
	// Interval is the time from an answer to the next question. It must be positive.
	Interval time.Duration
	// Jitter lengthens each interval by up to this share of it at random, so that many clusters are not asked in step.
	// Default: 0.1.
	Jitter float64
	// Requests is asked. Its context ends with the engagement, and after Interval at the latest. An error is logged;
	// the requests that come with it are enqueued.
	Requests func(ctx context.Context, name mcreconcile.ClusterName, cl cluster.Cluster) ([]request, error)
}

// ForCluster implements TypedSource.
func (p TypedPoll[request]) ForCluster(
	_ context.Context, name mcreconcile.ClusterName, cl cluster.Cluster,
) (source.TypedSource[request], error) {
	if p.Interval <= 0 || p.Requests == nil {
		return nil, errors.New("a poll needs a positive Interval, and Requests")
	}
	if p.Jitter <= 0 {
		p.Jitter = 0.1
	}
	return &poller[request]{TypedPoll: p, name: name, cluster: cl, asked: make(chan struct{})}, nil
}

func (p TypedPoll[request]) String() string { return "poll every " + p.Interval.String() }

type poller[request comparable] struct {
	TypedPoll[request]
	name    mcreconcile.ClusterName
	cluster cluster.Cluster
	asked   chan struct{} // closed when it has asked once
	running sync.WaitGroup
}

// Start implements source.TypedSource. Wait joins the goroutine.
func (p *poller[request]) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
	p.running.Go(func() {
		first := sync.OnceFunc(func() { close(p.asked) })
		for ctx.Err() == nil {
			p.ask(ctx, queue)
			first()
			p.pause(ctx)
		}
	})
	return nil
}

func (p *poller[request]) ask(ctx context.Context, queue workqueue.TypedRateLimitingInterface[request]) {
	asking, cancel := context.WithTimeout(ctx, p.Interval)
	defer cancel()
	requests, err := p.Requests(asking, p.name, p.cluster)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Polling the cluster did not work")
	}
	for _, req := range requests {
		queue.Add(req)
	}
}

func (p *poller[request]) pause(ctx context.Context) {
	timer := time.NewTimer(p.Interval + time.Duration(rand.Float64()*p.Jitter*float64(p.Interval))) //nolint:gosec // not for secrets
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// WaitForSync implements source.TypedSyncingSource.
func (p *poller[request]) WaitForSync(ctx context.Context) error {
	select {
	case <-p.asked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wait returns when nothing is being asked any more.
func (p *poller[request]) Wait() { p.running.Wait() }
