package demo

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// asReplica makes the program a replica of this name. Its argument is a kubeconfig of the local cluster.
const asReplica = "QUICKSTART_REPLICA"

// event is what a replica tells the demo.
type event struct {
	Status  *fleet.Status        `json:"status,omitempty"`
	Request *mcreconcile.Request `json:"request,omitempty"`
	Version string               `json:"version,omitempty"` // of the object of the request
}

// teller tells the demo what happens in a replica.
type teller struct {
	mu sync.Mutex // guards to
	to *json.Encoder
}

var _ audience = (*teller)(nil)

func (t *teller) note(s fleet.Status) { t.tell(event{Status: &s}) }

func (t *teller) reconciled(req mcreconcile.Request, version string) {
	t.tell(event{Request: &req, Version: version})
}

func (t *teller) tell(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.to.Encode(e); err != nil {
		ctrl.Log.Info("The demo does not listen", "error", err.Error()) // it may be over
	}
}

// beReplica runs the program as one of several, and tells the demo what it does, until ctx or the demo ends.
func beReplica(ctx context.Context, name, kubeconfig string, program func(context.Context, *Demo) error) int {
	logger := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)).WithValues("replica", name)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		complain(os.Stderr, err)
		return exitFailed
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends when the demo does, however that comes
		end()
	}()
	d := &Demo{local: config, replica: name, to: &teller{to: json.NewEncoder(os.Stdout)}, fleets: make(chan *fleet.Fleet, 1)}
	var following sync.WaitGroup
	following.Go(func() {
		select {
		case f := <-d.fleets:
			follow(ctx, f, d.to)
		case <-ctx.Done():
		}
	})
	err = program(ctx, d)
	end()
	following.Wait()
	if err != nil {
		complain(os.Stderr, err)
		return exitFailed
	}
	return 0
}
