package mcsource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
)

// panicEnv makes the test a process that panics in the way it names.
const panicEnv = "MCSOURCE_PANIC"

// TestAPanicIsLoggedAndEndsTheProcess: as that of a handler of a watch does in controller-runtime, where client-go logs it. It
// does not pass as an error.
func TestAPanicIsLoggedAndEndsTheProcess(t *testing.T) {
	if way := os.Getenv(panicEnv); way != "" {
		panics(t, way)
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for way, want := range map[string]string{
		"Clusters": "Observed a panic", "ForCluster": `"cluster"="a"`, "Start": `"cluster"="a"`, "Channel": `"cluster"="a"`,
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAPanicIsLoggedAndEndsTheProcess$")
			cmd.Env = append(os.Environ(), panicEnv+"="+way)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: on purpose") {
				t.Errorf("the process ends with %v: %s", err, out)
			}
			observed, _, _ := strings.Cut(string(out), "panic: on purpose")
			if !strings.Contains(observed, "Observed a panic") || !strings.Contains(observed, want) {
				t.Errorf("the log is %s, want the panic with %s", observed, want)
			}
		})
	}
}

// panics does not return.
func panics(t *testing.T, way string) {
	t.Helper()
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { fmt.Fprintln(os.Stderr, line) }, funcr.Options{}))
	running, _ := fleettest.Run(t, fleet.Options{})
	f := running.Fleet
	events := make(chan mcsource.ClusterEvent[int], 1)
	events <- mcsource.ClusterEvent[int]{ClusterName: "a"}
	src := map[string]source.TypedSource[mcreconcile.Request]{
		"Clusters": mcsource.Clusters(f, func(context.Context, fleet.Status) []mcreconcile.Request { panic("on purpose") }),
		"ForCluster": mcsource.Fleet(f, mcsource.Func(func(context.Context, mcreconcile.ClusterName, cluster.Cluster) (source.TypedSource[mcreconcile.Request], error) {
			panic("on purpose")
		}), nil),
		"Start": mcsource.Fleet(f, mcsource.Func(func(context.Context, mcreconcile.ClusterName, cluster.Cluster) (source.TypedSource[mcreconcile.Request], error) {
			return panicking{}, nil
		}), nil),
		"Channel": mcsource.Channel(f, events, func(mcreconcile.ClusterName, cluster.Cluster) handler.TypedEventHandler[int, mcreconcile.Request] {
			return handler.TypedFuncs[int, mcreconcile.Request]{
				GenericFunc: func(context.Context, event.TypedGenericEvent[int], workqueue.TypedRateLimitingInterface[mcreconcile.Request]) {
					panic("on purpose")
				},
			}
		}),
	}[way]
	if err := running.Set(fleet.Member{Name: "a", Cluster: &existing{}}); err != nil {
		t.Fatal(err)
	}
	for change := range f.Changes(ctx) {
		if change.Status.Engaged() { // an event of a member that is not engaged would be dropped
			break
		}
	}
	if err := src.Start(ctx, nil); err != nil {
		t.Fatal(err)
	}
	select {}
}

// panicking is a source whose Wait does not return: nothing is waited for that may keep a panic from ending the process.
type panicking struct{}

// Start implements source.TypedSource.
func (panicking) Start(context.Context, workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	panic("on purpose")
}

// Wait is called when the source shall have ended.
func (panicking) Wait() { select {} }
