package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// release is what is made of one commit.
type release struct {
	root, dist, version string
	made                time.Time
	platforms           []platform
}

// add makes what there is of one program.
func (r release) add(ctx context.Context, p program) error {
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	built := map[platform]string{}
	for _, on := range r.platforms {
		if !p.isFor(on.os) {
			continue
		}
		path := filepath.Join(work, on.String(), executable(p.name, on))
		if err := r.build(ctx, p, on, path); err != nil {
			return fmt.Errorf("build it for %s: %w", on, err)
		}
		if err := r.describe(p, on, path); err != nil {
			return fmt.Errorf("say what is in it for %s: %w", on, err)
		}
		built[on] = path
	}
	if p.image != "" {
		if err := r.image(p, built); err != nil {
			return fmt.Errorf("make its image: %w", err)
		}
		return r.manifests(p)
	}
	for on, path := range built {
		if err := r.pack(p, on, path); err != nil {
			return fmt.Errorf("pack it for %s: %w", on, err)
		}
	}
	if p.plugin != nil {
		return r.krew(p)
	}
	return nil
}

// isFor tells whether a program is released for an operating system.
func (p program) isFor(system string) bool {
	if p.image != "" {
		return system == "linux"
	}
	return len(p.systems) == 0 || slices.Contains(p.systems, system)
}

// build compiles a program. Its variable released is the version, and it has no path of this machine in it.
func (r release) build(ctx context.Context, p program, on platform, path string) error {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(r.root, p.folder), //nolint:gosec // nothing of it comes from outside
		"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.released="+r.version, "-o", absolute, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+on.os, "GOARCH="+on.arch)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	fmt.Fprintf(os.Stderr, "release: building %s for %s\n", p.name, on)
	return cmd.Run()
}

// windows is the system whose programs and archives have names of their own.
const windows = "windows"

// executable is the name of a program's file.
func executable(name string, on platform) string {
	if on.os == windows {
		return name + ".exe"
	}
	return name
}

// archive is the name of what a program is packed into, in the platform's usual form.
func (r release) archive(p program, on platform) string {
	if on.os == windows {
		return r.file(p, on, ".zip")
	}
	return r.file(p, on, ".tar.gz")
}

// file is the name of what is released of a program for a platform.
func (r release) file(p program, on platform, suffix string) string {
	return filepath.Join(r.dist, fmt.Sprintf("%s_%s_%s%s", p.name, r.version, on, suffix))
}
