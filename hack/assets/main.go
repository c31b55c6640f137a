// Command assets provides the programs of a Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager
// and kubectl) in one folder and prints the folder's path on standard output. Progress goes to standard error.
//
// Each program is taken from the first of these places that has it:
//
//  1. the folder that KUBEBUILDER_ASSETS names,
//  2. the folder that an earlier run filled (under the user's cache folder, one per version),
//  3. what setup-envtest has installed or can download,
//  4. its own Go module, built and stamped with its version.
//
// It can be run from anywhere, for the tests of other projects too:
//
//	export KUBEBUILDER_ASSETS=$(go run github.com/fleet-runtime/fleet-runtime/hack/assets@latest)
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/gofrs/flock"
)

// programs are what a control plane consists of. etcd's module is another than Kubernetes'.
var programs = []program{
	{name: "etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
	{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
	{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
}

type program struct{ name, pkg string }

func main() {
	offline := flag.Bool("installed-only", false, "download and build nothing; fail if a program is missing")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := provide(ctx, *offline)
	if err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}

// provide returns a folder that holds every program.
func provide(ctx context.Context, installedOnly bool) (string, error) {
	given := os.Getenv("KUBEBUILDER_ASSETS")
	if given != "" && len(missing(given)) == 0 {
		return given, nil
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	if given == "" && len(missing(dir)) == 0 {
		return dir, nil
	}
	if installedOnly {
		return "", fmt.Errorf("%s lacks %v: run `make assets` once, or point KUBEBUILDER_ASSETS at a folder that has them", dir, missing(dir))
	}
	if given != "" {
		// The given programs are linked into a folder of their own, beside those that they lack.
		dir = filepath.Join(dir, "with", linkName(given))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}

	// One run at a time fills the folder. The operating system releases the lock of a run that was killed.
	lock := flock.New(filepath.Join(dir, ".lock"))
	if locked, err := lock.TryLock(); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Path(), err)
	} else if !locked {
		progress("another run is filling %s; waiting for it", dir)
		if _, err := lock.TryLockContext(ctx, retryLock); err != nil {
			return "", fmt.Errorf("waiting for the lock %s: %w", lock.Path(), err)
		}
	}
	defer func() { _ = lock.Unlock() }()
	return dir, fill(ctx, dir, given)
}

// fill puts what is missing in dir there: links to installed programs first, then built ones.
func fill(ctx context.Context, dir, given string) error {
	if given != "" {
		if err := linkFrom(given, dir); err != nil {
			return err
		}
	}
	if given == "" && len(missing(dir)) > 0 {
		if installed := setupEnvtest(ctx); installed != "" {
			if err := linkFrom(installed, dir); err != nil {
				return err
			}
		}
	}
	if todo := missing(dir); len(todo) > 0 {
		return build(ctx, dir, todo)
	}
	return nil
}

// missing lists the programs that dir lacks.
func missing(dir string) []program {
	var out []program
	for _, p := range programs {
		if _, err := exec.LookPath(filepath.Join(dir, p.name)); err != nil {
			out = append(out, p)
		}
	}
	return out
}

func (p program) String() string { return p.name }

// cacheDir is where the programs of the pinned version are kept. Package mctest of the main module looks there too.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	return filepath.Join(base, "fleet-runtime", "controlplane", kubernetesVersion()+"-"+runtime.GOOS+"-"+runtime.GOARCH), nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "assets: "+format+"\n", args...)
}
