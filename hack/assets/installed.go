package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// setupEnvtestVersion is the release of setup-envtest that goes with the controller-runtime of the main module.
	setupEnvtestVersion = "v0.25.1"
	// setupEnvtestTimeout bounds the download. A firewall that swallows packets must not cost more than this.
	setupEnvtestTimeout = 3 * time.Minute

	retryLock = time.Second
)

// setupEnvtest returns the folder in which setup-envtest keeps the pinned minor version, or "" when it has none and
// cannot download it.
func setupEnvtest(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, setupEnvtestTimeout)
	defer cancel()
	version := strings.TrimPrefix(kubernetesVersion(), "v")
	progress("asking setup-envtest for Kubernetes %s", version)

	tool := "sigs.k8s.io/controller-runtime/tools/setup-envtest@" + setupEnvtestVersion
	cmd := exec.CommandContext(ctx, "go", "run", tool, "use", "--print", "path", version)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		progress("setup-envtest cannot provide it here (%s); building from Go modules instead", firstLine(err))
		return ""
	}
	return strings.TrimSpace(string(out))
}

// linkFrom links the programs of from into dir, where dir lacks them.
func linkFrom(from, dir string) error {
	for _, p := range missing(dir) {
		source, err := exec.LookPath(filepath.Join(from, p.name))
		if err != nil {
			continue
		}
		if source, err = filepath.Abs(source); err != nil {
			return err
		}
		target := filepath.Join(dir, p.name)
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(source, target); err != nil {
			return fmt.Errorf("linking %s into %s: %w", source, dir, err)
		}
	}
	return nil
}

// linkName names the folder in which the programs of another folder are completed.
func linkName(folder string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(folder))
	return fmt.Sprintf("%x", h.Sum64())
}

// firstLine is the line of a failed command that says most: the first one that it wrote to standard error.
func firstLine(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)), "\n"); line != "" {
			return line
		}
	}
	return err.Error()
}
