// Command release makes what a release consists of, in one folder: programs for each platform, an image for several, a file
// with the manifests that install it, what is in each program (SPDX), and checksums. The same commit makes the same bytes,
// wherever it is made. Nothing is pushed anywhere.
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
	"regexp"
	"strconv"
	"strings"
	"time"
)

// programs are what people install, and the image that they deploy. Each is a module of its own.
var programs = []program{
	{name: "kubebuilder-fleet", folder: "cmd/kubebuilder-fleet", systems: []string{"linux", "darwin"}}, // as kubebuilder itself
	{name: "mcctl", folder: "cmd/mcctl", plugin: &plugin{
		short: "Join clusters to a fleet and see how they are",
		description: `Works on a fleet of clusters that operators made with fleet-runtime reconcile.
join makes a cluster a member with least rights and without a credential that
lasts, and leave undoes that. list and describe tell how members are and what to
do. pause and drain hold members back; check and rbac are about rights.
`,
	}},
	{
		name: "operator", folder: "examples/operator", image: "fleet.example.com/operator",
		manifests: map[string][]string{
			"install.yaml": {"deploy/hub.yaml", "deploy/reader.yaml"},
			"member.yaml":  {"deploy/member.yaml"},
		},
	},
	{
		name: "replicator", folder: "operators/replicator", image: "fleet.example.com/replicator",
		manifests: map[string][]string{
			"install.yaml":    {"v1alpha1/crd.yaml", "../../mcowner/dependents/v1alpha1/crd.yaml", "config/hub.yaml"},
			"member.yaml":     {"config/member.yaml", "config/tenant.yaml"},
			"namespaces.yaml": {"config/namespaces.yaml"},
		},
	},
}

// program is a main package.
type program struct {
	name, folder string
	systems      []string            // the operating systems that it is for; empty for all. An image is one of Linux
	image        string              // its name in the manifests, there with the tag dev; empty for a program that is released as files
	plugin       *plugin             // what krew tells of it; nil for a program that is no plugin of kubectl
	manifests    map[string][]string // files that install it, and of which in its folder they are made
}

const defaultPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func main() {
	version := flag.String("version", "", "the `version` to release, such as v0.1.0")
	root := flag.String("root", "../..", "the repository's `folder`")
	dist := flag.String("dist", "../../dist", "the `folder` to make, which must not exist")
	only := flag.String("platforms", defaultPlatforms, "`platforms`, separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	platforms, err := parsePlatforms(*only)
	if err == nil {
		err = run(ctx, *root, *dist, *version, platforms, programs)
	}
	if err == nil {
		err = sayHowToPublish(ctx, os.Stdout, *root, *version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// run makes the folder, whole or not at all.
func run(ctx context.Context, root, dist, version string, platforms []platform, programs []program) error {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(version) {
		return fmt.Errorf("-version %q is no version such as v0.1.0", version)
	}
	if _, err := os.Stat(dist); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s exists already: remove it first", dist)
	}
	made, err := committed(ctx, root)
	if err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dist)), ".release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(unfinished) }()
	r := release{root: root, dist: unfinished, version: version, made: made, platforms: platforms}
	for _, p := range programs {
		if err := r.add(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := writeChecksums(unfinished); err != nil {
		return err
	}
	if err := os.Chmod(unfinished, 0o755); err != nil { //nolint:gosec // everybody may read it
		return err
	}
	return os.Rename(unfinished, dist)
}

// committed is when the newest commit was made: the time in all that is made of it.
func committed(ctx context.Context, root string) (time.Time, error) {
	out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output() //nolint:gosec // the caller's own folder
	if err != nil {
		return time.Time{}, fmt.Errorf("ask git for the time of the commit: %w", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

func parsePlatforms(text string) ([]platform, error) {
	var all []platform
	for part := range strings.SplitSeq(text, ",") {
		system, arch, found := strings.Cut(part, "/")
		if !found || system == "" || arch == "" {
			return nil, fmt.Errorf("-platforms: %q is no platform such as linux/arm64", part)
		}
		all = append(all, platform{os: system, arch: arch})
	}
	return all, nil
}
