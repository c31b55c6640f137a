package kind_test

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/mctest"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// fakeEngine stands in for a container engine, under kind's real library: see testdata/engine.sh.
type fakeEngine struct {
	state string // a folder
}

// install makes these programs the only ones that are found in PATH, until the test ends.
func install(t *testing.T, programs ...string) fakeEngine {
	t.Helper()
	script, err := filepath.Abs("testdata/engine.sh")
	must(t, err)
	bin := t.TempDir()
	for _, program := range programs {
		must(t, os.Symlink(script, filepath.Join(bin, program)))
	}
	e := fakeEngine{state: t.TempDir()}
	t.Setenv("PATH", bin)
	t.Setenv("ENGINE_STATE", e.state)
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "")
	t.Cleanup(func() { waitForQuestions(t) })
	return e
}

// waitForQuestions waits for the questions that providers have left when they ended, which they do with one that takes
// long. The programs that it runs write to the engine's folder.
func waitForQuestions(t *testing.T) {
	t.Helper()
	var goroutines bytes.Buffer
	ctx := context.WithoutCancel(t.Context()) // the test is over
	err := wait.PollUntilContextTimeout(ctx, often, patience, true, func(context.Context) (bool, error) {
		goroutines.Reset()
		err := pprof.Lookup("goroutine").WriteTo(&goroutines, 2)
		return !strings.Contains(goroutines.String(), "created by github.com/fleet-runtime/fleet-runtime/providers/kind.(*follower)"), err
	})
	if err != nil {
		t.Errorf("a question has no answer %v after the end of the test: %v\n%s", patience, err, &goroutines)
	}
}

// create adds a cluster that is reached as the config says, or changes it.
func (e fakeEngine) create(t *testing.T, name string, config *rest.Config) {
	t.Helper()
	kubeconfig, err := mctest.Kubeconfig(config)
	must(t, err)
	server, err := url.Parse(config.Host)
	must(t, err)
	e.put(t, name, "port", []byte(server.Port()+"\n"))
	// The server in the node's kubeconfig is its name in kind's network.
	e.put(t, name, "admin.conf", []byte(strings.ReplaceAll(string(kubeconfig), config.Host, "https://"+name+"-control-plane:6443")))
}

// put writes a file of a cluster in one step. The cluster is there when it has a file.
func (e fakeEngine) put(t *testing.T, name, file string, content []byte) {
	t.Helper()
	temporary := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(temporary, content, 0o600))
	must(t, os.MkdirAll(filepath.Join(e.state, name), 0o700))
	must(t, os.Rename(temporary, filepath.Join(e.state, name, file)))
}

// remove deletes a cluster.
func (e fakeEngine) remove(t *testing.T, name string) {
	t.Helper()
	must(t, os.Rename(filepath.Join(e.state, name), filepath.Join(t.TempDir(), "gone")))
}

func (e fakeEngine) rename(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.Rename(filepath.Join(e.state, from), filepath.Join(e.state, to)))
}

// stop ends the engine's daemon.
func (e fakeEngine) stop(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(e.state, ".down"), nil, 0o600))
}

// interrupt stops the engine's daemon until restart is called. noticed is closed when somebody has asked it since.
func (e fakeEngine) interrupt(t *testing.T) (noticed <-chan struct{}, restart func()) {
	t.Helper()
	e.stop(t)
	asked := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
			_, err := os.Stat(filepath.Join(e.state, ".noticed"))
			return err == nil, nil
		})
		if err == nil {
			close(asked)
		}
	})
	return asked, func() {
		cancel()
		watching.Wait()
		must(t, os.Remove(filepath.Join(e.state, ".down")))
		if err := os.Remove(filepath.Join(e.state, ".noticed")); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
