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
	"errors"
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
	installedOnly := flag.Bool("installed-only", false, "download and build nothing; fail if a program is missing")
	flag.Parse()
	os.Exit(run(*installedOnly))
}

func run(installedOnly bool) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := provide(ctx, installedOnly)
	if err != nil {
		progressf("%v", err)
		return 1
	}
	fmt.Println(dir)
	return 0
}

// provide returns a folder that holds every program, and fills it first if it must.
func provide(ctx context.Context, installedOnly bool) (string, error) {
	given := os.Getenv("KUBEBUILDER_ASSETS")
	if given != "" && !filepath.IsAbs(given) {
		return "", fmt.Errorf("KUBEBUILDER_ASSETS=%s must be an absolute path: every test runs in a folder of its own", given)
	}
	if given != "" && len(missing(given)) == 0 {
		return given, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := cache
	if given != "" {
		// The given programs are linked into a folder of their own, beside those that they lack.
		dir = filepath.Join(cache, "with", linkName(given))
	}
	if len(missing(dir)) == 0 {
		return dir, nil
	}
	return dir, fill(ctx, dir, given, cache, installedOnly)
}

// fill puts what dir lacks there: links to installed programs first, then built ones.
func fill(ctx context.Context, dir, given, cache string, installedOnly bool) error {
	unlock, err := lock(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	switch {
	case given != "":
		err = errors.Join(linkFrom(given, dir), linkFrom(cache, dir))
	case !installedOnly && len(missing(dir)) > 0: // a run that this one waited for may have filled it
		err = linkFrom(setupEnvtest(ctx), dir)
	}
	if err != nil {
		return err
	}
	lacking := missing(dir)
	if installedOnly && len(lacking) > 0 {
		return fmt.Errorf("%s lacks %v: run `make assets` once, or point KUBEBUILDER_ASSETS at a folder that has all", dir, lacking)
	}
	return build(ctx, dir, lacking)
}

// lock makes dir, and waits until no other run fills it. The operating system releases the lock of a run that was killed.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(dir, ".lock"))
	if locked, err := l.TryLock(); err != nil {
		return nil, fmt.Errorf("locking %s: %w", l.Path(), err)
	} else if !locked {
		progressf("another run is filling %s; waiting for it", dir)
		if _, err := l.TryLockContext(ctx, retryLock); err != nil {
			return nil, fmt.Errorf("waiting for the lock %s: %w", l.Path(), err)
		}
	}
	return func() { _ = l.Unlock() }, nil
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

func progressf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "assets: "+format+"\n", args...)
}
