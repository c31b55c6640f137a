// Command image puts one static program into a container image, without an engine and without a registry:
//
//	go run -C hack/release ./image --tag example.com/operator:v1 --output $PWD/operator.tar $PWD/examples/operator
//
// The program is an executable file, or the folder of a main package, which is built. The archive is what docker save
// writes: kind load image-archive, ctr images import, podman load and docker load take it. The same program gives the same
// archive; for the same program on each machine, set GOFLAGS=-trimpath. The image has nothing else, runs as a user without
// rights, and its file system need not be writable.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/fleet-runtime/fleet-runtime/hack/release/container"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1) //nolint:gocritic // stop gives up no more than the end does
	}
}

func run(ctx context.Context, args []string) error {
	p := container.Program{Made: time.Unix(0, 0).UTC()}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&p.User, "user", container.Nobody, "the `user` that the program runs as")
	flags.StringVar(&p.Arch, "arch", runtime.GOARCH, "the architecture `name`d as Go does")
	flags.StringVar(&p.Files, "files", "", "a `folder` of files that are in the image too")
	flags.StringVar(&p.At, "at", "", "the `path` of the program in the image, by default in /usr/local/bin")
	tag := flags.String("tag", "", "the `name` of the image, with its registry")
	version := flags.String("version", "", "the `version` that the main package's variable released gets, where a folder is built")
	output := flags.String("output", "", "the `file` to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *output == "" || *tag == "" {
		return errors.New("say --tag, --output, and a program or the folder of one")
	}
	if p.At != "" && !path.IsAbs(p.At) {
		return fmt.Errorf("--at %s is no path from the root", p.At)
	}
	source, err := filepath.Abs(flags.Arg(0))
	if err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	p.Path, p.At = source, cmp.Or(p.At, container.Bin+filepath.Base(source))
	if info.IsDir() {
		work, err := os.MkdirTemp("", "image-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(work) }()
		p.Path = filepath.Join(work, "program")
		if err := build(ctx, source, p.Arch, *version, p.Path); err != nil {
			return err
		}
	}
	return write(p, *tag, *output)
}

// build builds the main package in a folder, which may be of another module.
func build(ctx context.Context, folder, arch, version, program string) error {
	ldflags := "-s -w"
	if version != "" {
		ldflags += " -X main.released=" + version
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", ldflags, "-o", program, ".") //nolint:gosec // what the user asks for
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", folder, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// write writes a file that is there when it is whole, and not before.
func write(p container.Program, tag, output string) error {
	reference, err := name.NewTag(tag, name.StrictValidation)
	if err != nil {
		return err
	}
	image, err := p.Image()
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(output), ".image-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary.Name()) }() // it is not there any more if all went well
	if err := errors.Join(tarball.Write(reference, image, temporary), temporary.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", output, err)
	}
	return os.Rename(temporary.Name(), output)
}
