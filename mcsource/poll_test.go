package mcsource_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/mcqueue"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

func TestAPollAsksAtOnceAndThenAtTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		begin := time.Now()
		poll := mcsource.Poll{Interval: 10 * time.Second, Requests: func(_ context.Context, name mcreconcile.ClusterName, _ cluster.Cluster) ([]mcreconcile.Request, error) {
			asked = append(asked, time.Since(begin))
			req := mcreconcile.Request{ClusterName: name}
			req.Name = "found"
			return []mcreconcile.Request{req}, errors.New("and more could not be asked")
		}}
		src, err := poll.ForCluster(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
		defer q.ShutDown()
		var lines []string
		ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		if err := src.Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		src.(interface{ Wait() }).Wait()
		if len(asked) != 4 || asked[0] != 0 {
			t.Fatalf("asked after %v, want at once and three times more within 40 s", asked)
		}
		if asked[1]-asked[0] == asked[2]-asked[1] {
			t.Errorf("asked after %v, want that the pauses differ: many clusters would be asked in step", asked)
		}
		for i := 1; i < len(asked); i++ {
			if pause := asked[i] - asked[i-1]; pause < 10*time.Second || pause > 11*time.Second {
				t.Errorf("a pause of %s, want 10 s and up to a tenth more", pause)
			}
		}
		if len(lines) != len(asked) || !strings.Contains(lines[0], "and more could not be asked") {
			t.Errorf("the log is %q, want why, each time", lines)
		}
		if r, _ := q.Get(); r.Name != "found" || r.ClusterName != "a" {
			t.Errorf("enqueued %v, want what was found, although there was an error", r)
		}
	})
}

// TestAPollHasSyncedWhenItHasAskedOnce, and has ended when it asks no more. What it finds after its end is not enqueued.
func TestAPollHasSyncedWhenItHasAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		poll := mcsource.Poll{Interval: time.Second, Requests: func(_ context.Context, name mcreconcile.ClusterName, _ cluster.Cluster) ([]mcreconcile.Request, error) {
			<-answer
			return []mcreconcile.Request{{ClusterName: name}}, nil
		}}
		src, err := poll.ForCluster(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		q := mcqueue.New("", mcqueue.Options[mcreconcile.Request]{})
		defer q.ShutDown()
		ctx, cancel := context.WithCancel(t.Context())
		if err := src.Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		sync := src.(source.TypedSyncingSource[mcreconcile.Request]).WaitForSync
		impatient, giveUp := context.WithTimeout(t.Context(), time.Minute)
		defer giveUp()
		if err := sync(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it has an answer, WaitForSync() = %v", err)
		}
		answer <- struct{}{}
		if err := sync(t.Context()); err != nil {
			t.Errorf("WaitForSync() = %v", err)
		}
		synctest.Wait()
		if n := q.Len(); n != 1 {
			t.Errorf("%d requests are queued, want one", n)
		}
		req, _ := q.Get()
		q.Done(req)

		<-time.After(time.Minute) // it asks again
		cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			src.(interface{ Wait() }).Wait()
		}()
		synctest.Wait()
		if isClosed(ended) {
			t.Error("it has ended while it asks")
		}
		close(answer)
		<-ended
		if n := q.Len(); n != 0 {
			t.Errorf("%d requests are queued that were found after the end", n)
		}
	})
}

func TestAPollThatCannotBeAskedIsRefused(t *testing.T) {
	for name, poll := range map[string]mcsource.Poll{
		"NoInterval": {Requests: func(context.Context, mcreconcile.ClusterName, cluster.Cluster) ([]mcreconcile.Request, error) {
			return nil, nil
		}},
		"NoRequests": {Interval: time.Second},
	} {
		if _, err := poll.ForCluster(t.Context(), "a", nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
