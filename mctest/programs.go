package mctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// errNoPrograms says where the programs of a control plane come from.
var errNoPrograms = errors.New("no programs of a control plane found; provide them with `make assets`, " +
	"or in another project with `go run github.com/fleet-runtime/fleet-runtime/hack/assets@latest`")

// programs are the paths of what a control plane runs, and the flags that make it small.
type programs struct {
	etcd, apiServer string
	lean            []flag
}

type flag struct{ name, value string }

// findPrograms looks in KUBEBUILDER_ASSETS, in what `make assets` has provided, and in what setup-envtest has
// installed, newest version first.
func findPrograms(ctx context.Context) (programs, error) {
	dirs, err := programDirs()
	if err != nil {
		return programs{}, err
	}
	for _, dir := range dirs {
		p := programs{etcd: filepath.Join(dir, "etcd"), apiServer: filepath.Join(dir, "kube-apiserver")}
		if !executable(p.etcd) || !executable(p.apiServer) {
			continue
		}
		help, err := exec.CommandContext(ctx, p.apiServer, "--help").CombinedOutput() //nolint:gosec // the user names it
		if err != nil {
			return programs{}, fmt.Errorf("asking %s for its flags: %w", p.apiServer, err)
		}
		p.lean = leanFlags(string(help))
		return p, nil
	}
	return programs{}, fmt.Errorf("%w (looked in %s)", errNoPrograms, strings.Join(dirs, ", "))
}

// programDirs lists the folders that may hold the programs, the best first.
func programDirs() ([]string, error) {
	if given := os.Getenv("KUBEBUILDER_ASSETS"); given != "" {
		// What was named is what is meant: another version in its place would surprise.
		abs, err := filepath.Abs(given)
		return []string{abs}, err
	}
	var dirs []string
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, newestFirst(filepath.Join(cache, "fleet-runtime", "controlplane"))...)
	}
	if installed, err := envtest.SetupEnvtestDefaultBinaryAssetsDirectory(); err == nil {
		dirs = append(dirs, newestFirst(installed)...)
	}
	return dirs, nil
}

// newestFirst lists the folders in parent that are named VERSION-OS-ARCH for this machine.
func newestFirst(parent string) []string {
	suffix := "-" + runtime.GOOS + "-" + runtime.GOARCH
	found, err := filepath.Glob(filepath.Join(parent, "*"+suffix))
	if err != nil {
		return nil
	}
	versions := map[string]*version.Version{}
	var dirs []string
	for _, dir := range found {
		v, err := version.ParseSemantic(strings.TrimSuffix(filepath.Base(dir), suffix))
		if err != nil {
			continue
		}
		versions[dir] = v
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int {
		if versions[a].LessThan(versions[b]) {
			return 1
		}
		return -1
	})
	return dirs
}

func executable(path string) bool {
	_, err := exec.LookPath(path)
	return err == nil
}

// leanFlags picks what makes one of many API servers on a small machine cheaper, of what its help says that it knows:
// a server refuses to start with a flag or a feature gate that its version lacks.
func leanFlags(help string) []flag {
	var flags []flag
	for _, f := range []flag{
		{"profiling", "false"},
		{"enable-priority-and-fairness", "false"},
		{"etcd-count-metric-poll-period", "0"},
		{"etcd-db-metric-poll-interval", "0"},
	} {
		if regexp.MustCompile(`(?m)^\s*--` + f.name + `[ =]`).MatchString(help) {
			flags = append(flags, f)
		}
	}
	for _, gate := range []string{"APIServerIdentity", "UnknownVersionInteroperabilityProxy"} {
		if regexp.MustCompile(`(?m)[\s:]` + gate + `=true\|false`).MatchString(help) {
			flags = append(flags, flag{"feature-gates", gate + "=false"})
		}
	}
	return flags
}
