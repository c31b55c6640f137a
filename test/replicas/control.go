package replicas

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// control does, again and again, what a replica does to take a member over, and so measures how late the machine is: three writes to
// the hub, a new connection to the member, a list and a write.
type control struct {
	hub       *mctest.ControlPlane
	namespace string
	member    *member

	mu    sync.Mutex // guards what follows
	begun time.Time  // the one under way, zero between two
	took  []lateness // those that have ended
}

type lateness struct {
	at   time.Time
	took time.Duration
}

func newControl(hub *mctest.ControlPlane, namespace string, m *member) *control {
	return &control{hub: hub, namespace: namespace, member: m}
}

func (c *control) run(t *testing.T, end <-chan struct{}) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "control"}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.member.namespace, Name: "control"}}
	ctx := t.Context()
	err := c.hub.Client().Create(ctx, lease)
	if err == nil {
		err = c.member.cp.Client().Create(ctx, cm)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for err == nil {
		begin := time.Now()
		c.mu.Lock()
		c.begun = begin
		c.mu.Unlock()
		for range 3 {
			if err == nil {
				err = c.hub.Client().Patch(ctx, lease, now())
			}
		}
		if err == nil {
			err = c.takeOver(ctx, cm)
		}
		if err != nil {
			break
		}
		c.mu.Lock()
		c.took, c.begun = append(c.took, lateness{at: begin, took: time.Since(begin)}), time.Time{}
		c.mu.Unlock()
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
	if ctx.Err() == nil {
		t.Errorf("the control: %v", err)
	}
}

// takeOver does what a replica does that has a member from now on.
func (c *control) takeOver(ctx context.Context, cm *corev1.ConfigMap) error {
	config := c.member.recorder.Config()
	config.Dial = (&net.Dialer{}).DialContext // no transport that there is
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	cl, err := client.New(config, client.Options{HTTPClient: httpClient})
	if err != nil {
		return err
	}
	if err := cl.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(c.member.namespace)); err != nil {
		return err
	}
	return cl.Patch(ctx, cm, now())
}

func now() client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"at":"`+time.Now().String()+`"}}}`))
}

// slowest returns how long it took at most since then. One that has not ended yet is the slowest where the machine stood still.
func (c *control) slowest(since time.Time) (slowest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.took {
		if one.at.Add(one.took).After(since) {
			slowest = max(slowest, one.took)
		}
	}
	if !c.begun.IsZero() {
		slowest = max(slowest, time.Since(c.begun))
	}
	return slowest
}
