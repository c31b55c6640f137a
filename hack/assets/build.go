package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// controlplane.mod requires k8s.io/kubernetes, which is written to be built in its own repository: its go.mod names
// every staging module at v0.0.0. Requiring each at its real version and excluding v0.0.0 makes it an ordinary
// dependency. It is embedded, not a go.mod on disk, so that this command can be run by its import path.
var (
	//go:embed controlplane.mod
	controlplaneMod []byte
	//go:embed controlplane.sum
	controlplaneSum []byte
)

const progressEvery = 5 * time.Second

// kubernetesVersion is the version that controlplane.mod requires, "v1.37.1".
func kubernetesVersion() string {
	for line := range strings.Lines(string(controlplaneMod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" {
			return fields[1]
		}
	}
	panic("controlplane.mod requires no k8s.io/kubernetes")
}

// minorVersion is how setup-envtest names the newest patch release of that version's minor, "1.37.x".
func minorVersion() string {
	version := strings.TrimPrefix(kubernetesVersion(), "v")
	return version[:strings.LastIndex(version, ".")] + ".x"
}

// build compiles the programs into dir, one after the other: each already uses all cores. The caller holds dir's lock.
func build(ctx context.Context, dir string, todo []program) error {
	if len(todo) == 0 {
		return nil
	}
	work := filepath.Join(dir, ".build")
	if err := os.RemoveAll(work); err != nil { // a run that was killed has left it
		return err
	}
	if err := os.Mkdir(work, 0o750); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, content := range map[string][]byte{"go.mod": controlplaneMod, "go.sum": controlplaneSum} {
		if err := os.WriteFile(filepath.Join(work, name), content, 0o600); err != nil {
			return err
		}
	}
	progressf("building %v of Kubernetes %s from Go modules, once; on two cores this takes about ten minutes", todo, kubernetesVersion())
	for i, p := range todo {
		label := fmt.Sprintf("%s (%d of %d)", p.name, i+1, len(todo))
		if err := buildOne(ctx, work, p, label); err != nil {
			return fmt.Errorf("building %s: %w", p.name, err)
		}
		// The rename is what makes a program visible, so an interrupted build leaves none that is half written.
		if err := os.Rename(filepath.Join(work, p.name), filepath.Join(dir, p.name)); err != nil {
			return err
		}
	}
	return nil
}

func buildOne(ctx context.Context, work string, p program, label string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-mod=readonly", //nolint:gosec // nothing of it comes from outside
		"-ldflags", linkerFlags(), "-o", p.name, p.pkg)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}

	var compiled atomic.Int64
	done := make(chan struct{})
	go reportProgress(label, &compiled, done)
	defer close(done)

	var other []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "go: downloading"):
			progressf("%s: %s", label, strings.TrimPrefix(line, "go: "))
		case strings.ContainsAny(line, " \t"):
			other = append(other, line)
		default: // -v prints each package as it is compiled
			compiled.Add(1)
		}
	}
	_, _ = io.Copy(io.Discard, stderr) // what follows a line that is too long for a Scanner
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(other, "\n"))
	}
	return nil
}

// reportProgress prints a line every few seconds until done is closed.
func reportProgress(label string, compiled *atomic.Int64, done <-chan struct{}) {
	start := time.Now()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			progressf("%s: %d packages compiled, %s", label, compiled.Load(), time.Since(start).Round(time.Second))
		case <-done:
			progressf("%s: done after %s", label, time.Since(start).Round(time.Second))
			return
		}
	}
}

// linkerFlags strip the programs and stamp them, since kubectl cannot parse the version of a server that was not.
func linkerFlags() string {
	version := kubernetesVersion()
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	var flags strings.Builder
	flags.WriteString("-s -w")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, stamp := range []string{
			"gitVersion=" + version, "gitMajor=" + parts[0], "gitMinor=" + parts[1],
			"gitTreeState=clean", "buildDate=1970-01-01T00:00:00Z",
		} {
			flags.WriteString(" -X " + pkg + "." + stamp)
		}
	}
	return flags.String()
}
