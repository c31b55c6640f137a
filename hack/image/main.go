// Command image puts one static program into a container image, without an engine and without a registry:
//
//	go run ./hack/image --tag example.com/operator:v1 --output operator.tar ./examples/operator
//
// The program is an executable file, or the folder of a main package, which is built. The archive is what docker save
// writes: kind load image-archive, ctr images import, podman load and docker load take it. The same program gives the same
// archive; for the same program on each machine, set GOFLAGS=-trimpath. The image has nothing else, runs as a user without rights, and its file system need not be writable.
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
	"strings"
	"syscall"
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
	var i image
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.Func("tag", "a `name` of the image; may be given several times", func(tag string) error {
		i.tags = append(i.tags, tag)
		return nil
	})
	flags.StringVar(&i.user, "user", "65532", "the `user` that the program runs as")
	flags.StringVar(&i.arch, "arch", runtime.GOARCH, "the architecture `name`d as Go does")
	flags.StringVar(&i.files, "files", "", "a `folder` of files that are in the image too")
	output := flags.String("output", "", "the `file` to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *output == "" || len(i.tags) == 0 {
		return errors.New("say --tag, --output, and a program or the folder of one")
	}
	i.program = flags.Arg(0)
	info, err := os.Stat(i.program)
	if err != nil {
		return err
	}
	if info.IsDir() {
		work, err := os.MkdirTemp("", "image-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(work) }()
		if i.program, err = build(ctx, i.program, i.arch, work); err != nil {
			return err
		}
	}
	return i.write(*output)
}

// build builds the main package in a folder, which may be of another module, and returns the program.
func build(ctx context.Context, folder, arch, into string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	program := filepath.Join(into, filepath.Base(folder))
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", program, ".") //nolint:gosec // what the user asks for
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", folder, err, strings.TrimSpace(string(output)))
	}
	return program, nil
}
