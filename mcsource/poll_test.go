package mcsource_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

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
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		if err := src.Start(ctx, q); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		src.(interface{ Wait() }).Wait()
		if len(asked) != 4 || asked[0] != 0 {
			t.Fatalf("asked after %v, want at once and three times more within 40 s", asked)
		}
		for i := 1; i < len(asked); i++ {
			if pause := asked[i] - asked[i-1]; pause < 10*time.Second || pause > 11*time.Second {
				t.Errorf("a pause of %s, want 10 s and up to a tenth more", pause)
			}
		}
		if r, _ := q.Get(); r.Name != "found" || r.ClusterName != "a" {
			t.Errorf("enqueued %v, want what was found, although there was an error", r)
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
