package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const tag = "example.com/a:v1"

func TestTheImageOfAProgramHasItAloneAndRunsItWithoutRights(t *testing.T) {
	image := loaded(t, made(t, "--tag", "docker.io/library/a:v1"), "docker.io/library/a:v1")
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/program"}) {
		t.Errorf("the config is %+v", config.Config)
	}
	content := unpack(t, image)
	if got := slices.Sorted(maps.Keys(content)); !cmp.Equal(got, []string{"tmp", "usr/local/bin/program"}) {
		t.Errorf("the layer has %q", got)
	}
	if got := content["usr/local/bin/program"]; got != "a program" {
		t.Errorf("the program is %q", got)
	}
}

func TestTheSameProgramGivesTheSameArchive(t *testing.T) {
	first, second := read(t, made(t, "--tag", tag)), read(t, made(t, "--tag", tag))
	if !bytes.Equal(first, second) {
		t.Error("two archives of one program differ")
	}
}

func TestAProgramIsWhereTheManifestsOfAProjectLookForIt(t *testing.T) {
	image := loaded(t, made(t, "--tag", tag, "--at", "/manager"), tag)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if content := unpack(t, image); content["manager"] != "a program" || !cmp.Equal(config.Config.Entrypoint, []string{"/manager"}) {
		t.Errorf("the image has %q, and runs %q", content, config.Config.Entrypoint)
	}
}

func TestAFolderIsInTheImageWithItsLinks(t *testing.T) {
	folder := t.TempDir()
	put(t, filepath.Join(folder, "usr/sbin/real"), "a file")
	if err := os.Symlink("real", filepath.Join(folder, "usr/sbin/link")); err != nil {
		t.Fatal(err)
	}
	layer := unpack(t, loaded(t, made(t, "--tag", tag, "--files", folder), tag))
	if got := slices.Sorted(maps.Keys(layer)); !cmp.Equal(got, []string{"tmp", "usr", "usr/local/bin/program", "usr/sbin", "usr/sbin/link", "usr/sbin/real"}) {
		t.Errorf("the layer has %q", got)
	}
}

func TestAPackageIsBuiltAsAStaticProgram(t *testing.T) {
	output := filepath.Join(t.TempDir(), "image.tar")
	if err := run(t.Context(), []string{"--tag", tag, "--output", output, "../../node/pause"}); err != nil {
		t.Fatal(err)
	}
	program := unpack(t, loaded(t, output, tag))["usr/local/bin/pause"]
	if !strings.HasPrefix(program, "\x7fELF") || strings.Contains(program, "ld-linux") {
		t.Errorf("a program of %d bytes is not a static one", len(program))
	}
}

func TestWhatCannotBeBuiltIsAnErrorAndLeavesNoArchive(t *testing.T) {
	folder := t.TempDir()
	for _, program := range []string{filepath.Join(folder, "missing"), folder} {
		output := filepath.Join(t.TempDir(), "image.tar")
		if err := run(t.Context(), []string{"--tag", tag, "--output", output, program}); err == nil {
			t.Errorf("%s was put into an image", program)
		}
		if entries, err := os.ReadDir(filepath.Dir(output)); err != nil || len(entries) > 0 {
			t.Errorf("%v was left, error %v", entries, err)
		}
	}
}

// made returns the path of an archive of a program, made in a folder of its own.
func made(t *testing.T, args ...string) string {
	t.Helper()
	folder := t.TempDir()
	put(t, filepath.Join(folder, "program"), "a program")
	output := filepath.Join(folder, "image.tar")
	if err := run(t.Context(), append(args, "--output", output, filepath.Join(folder, "program"))); err != nil {
		t.Fatal(err)
	}
	return output
}

// loaded returns the image of this name in an archive, which is a whole one.
func loaded(t *testing.T, archive, tag string) v1.Image {
	t.Helper()
	reference, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(archive, &reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Fatal(err)
	}
	return image
}

// unpack returns what is in the files of an image.
func unpack(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(file)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}
