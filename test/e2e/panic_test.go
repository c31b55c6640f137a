package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/fleet-runtime/fleet-runtime/fleet"
	"github.com/fleet-runtime/fleet-runtime/internal/fleettest"
	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
	"github.com/fleet-runtime/fleet-runtime/mcsource"
	"github.com/fleet-runtime/fleet-runtime/mctest"
)

const (
	// panicEnv makes a test a process whose handler of events panics in the way it names.
	panicEnv = "HANDLER_PANIC"
	// panicKubeconfigEnv is the file with the kubeconfig of the member of that process.
	panicKubeconfigEnv = "HANDLER_PANIC_KUBECONFIG"
)

// TestAPanicOfAHandlerIsLoggedWithTheCluster: it ends the process, so the log is all that tells whose object it was.
func TestAPanicOfAHandlerIsLoggedWithTheCluster(t *testing.T) {
	if way := os.Getenv(panicEnv); way != "" {
		panicInHandler(t, way)
	}
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, pool.Share(t, mctest.Options{}).Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"source", "informer"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestAPanicOfAHandlerIsLoggedWithTheCluster$")
			cmd.Env = append(os.Environ(), panicEnv+"="+way, panicKubeconfigEnv+"="+file)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: on purpose") {
				t.Fatalf("the process ends with %v: %s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "Observed a panic") && strings.Contains(line, `"cluster"="a"`) {
					return
				}
			}
			t.Errorf("no line of the log has the panic and the cluster: %s", out)
		})
	}
}

// panicInHandler does not return.
func panicInHandler(t *testing.T, way string) {
	t.Helper()
	logger := funcr.New(func(_, line string) { fmt.Fprintln(os.Stderr, line) }, funcr.Options{})
	klog.SetLogger(logger)
	log.SetLogger(logger)
	ctx := log.IntoContext(t.Context(), logger)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(panicKubeconfigEnv))
	if err != nil {
		t.Fatal(err)
	}
	running, _ := fleettest.Run(t, fleet.Options{Logger: logger})
	if err := running.Set(fleet.Member{Name: "a", Config: config}); err != nil {
		t.Fatal(err)
	}
	if way == "source" {
		source := mcsource.Fleet(running.Fleet, mcsource.Kind[client.Object](&corev1.Namespace{}, panicking), nil)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
		if err := source.Start(ctx, queue); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	for change := range running.Changes(ctx) {
		if change.Engagement != nil {
			addPanicking(t, change.Engagement)
			break
		}
	}
	select {}
}

// panicking are handlers that panic.
func panicking(mcreconcile.ClusterName, cluster.Cluster) handler.TypedEventHandler[client.Object, mcreconcile.Request] {
	return handler.TypedFuncs[client.Object, mcreconcile.Request]{
		CreateFunc: func(context.Context, event.TypedCreateEvent[client.Object], workqueue.TypedRateLimitingInterface[mcreconcile.Request]) {
			panic("on purpose")
		},
	}
}

// addPanicking adds a handler that panics to an informer of a member.
func addPanicking(t *testing.T, e *fleet.Engagement) {
	t.Helper()
	informer, err := e.Cluster().GetCache().GetInformer(e.Context(), &corev1.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { panic("on purpose") }}); err != nil {
		t.Fatal(err)
	}
}
