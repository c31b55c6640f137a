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
	"slices"
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
// cannot download it. Not every patch release is to be had there.
func setupEnvtest(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, setupEnvtestTimeout)
	defer cancel()
	version := minorVersion()
	progressf("asking setup-envtest for Kubernetes %s", version)

	tool := "sigs.k8s.io/controller-runtime/tools/setup-envtest@" + setupEnvtestVersion
	cmd := exec.CommandContext(ctx, "go", "run", tool, "use", "--print", "path", version) //nolint:gosec // see build
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		progressf("setup-envtest cannot provide it here (%s); building from Go modules instead", reason(err))
		return ""
	}
	return strings.TrimSpace(string(out))
}

// linkFrom links the programs of from into dir, where dir lacks them.
func linkFrom(from, dir string) error {
	if from == "" {
		return nil
	}
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

// reason is the line that says why a command failed: the last one of its standard error that is not the go command's own.
func reason(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		for _, line := range slices.Backward(strings.Split(string(exit.Stderr), "\n")) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "exit status") && !strings.HasPrefix(line, "go: downloading") {
				return line
			}
		}
	}
	return err.Error()
}
