package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheImageOfAProgramHasItAloneAndRunsItWithoutRights(t *testing.T) {
	archive := made(t, "--tag", "example.com/a:v1", "--tag", "example.com/b:v1")
	files := unpack(t, archive)

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	decode(t, files["manifest.json"], &manifest)
	if len(manifest) != 1 || !cmp.Equal(manifest[0].RepoTags, []string{"example.com/a:v1", "example.com/b:v1"}) || len(manifest[0].Layers) != 1 {
		t.Fatalf("the manifest is %+v", manifest)
	}
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		} `json:"config"`
		RootFS struct {
			DiffIDs []string `json:"diff_ids"` //nolint:tagliatelle // as the format has it
		} `json:"rootfs"`
	}
	decode(t, files[manifest[0].Config], &config)
	if config.Config.User != "65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/program"}) {
		t.Errorf("the config is %+v", config)
	}
	layer := files[manifest[0].Layers[0]]
	if sum := sha256.Sum256(layer); !cmp.Equal(config.RootFS.DiffIDs, []string{"sha256:" + hex.EncodeToString(sum[:])}) {
		t.Errorf("the layer is not the one of the config: %v", config.RootFS.DiffIDs)
	}
	content := unpack(t, layer)
	if got := sorted(content); !cmp.Equal(got, []string{"tmp/", "usr/local/bin/program"}) {
		t.Errorf("the layer has %q", got)
	}
	if got := string(content["usr/local/bin/program"]); got != "a program" {
		t.Errorf("the program is %q", got)
	}
}

func TestTheSameProgramGivesTheSameArchive(t *testing.T) {
	first, second := made(t, "--tag", "a:v1"), made(t, "--tag", "a:v1")
	if !bytes.Equal(first, second) {
		t.Error("two archives of one program differ")
	}
}

func TestAFolderIsInTheImageWithItsLinks(t *testing.T) {
	folder := t.TempDir()
	write(t, filepath.Join(folder, "usr/sbin/real"), "a file")
	if err := os.Symlink("real", filepath.Join(folder, "usr/sbin/link")); err != nil {
		t.Fatal(err)
	}
	layer := unpack(t, unpack(t, made(t, "--tag", "a:v1", "--files", folder))["layer.tar"])
	if got := sorted(layer); !cmp.Equal(got, []string{"tmp/", "usr/", "usr/local/bin/program", "usr/sbin/", "usr/sbin/link", "usr/sbin/real"}) {
		t.Errorf("the layer has %q", got)
	}
}

func TestAPackageIsBuiltAsAStaticProgram(t *testing.T) {
	output := filepath.Join(t.TempDir(), "image.tar")
	if err := run(t.Context(), []string{"--tag", "a:v1", "--output", output, "../node/pause"}); err != nil {
		t.Fatal(err)
	}
	program := unpack(t, unpack(t, read(t, output))["layer.tar"])["usr/local/bin/pause"]
	if !bytes.HasPrefix(program, []byte("\x7fELF")) || bytes.Contains(program, []byte("ld-linux")) {
		t.Errorf("a program of %d bytes is not a static one", len(program))
	}
}

func TestWhatCannotBeBuiltIsAnErrorAndLeavesNoArchive(t *testing.T) {
	folder := t.TempDir()
	for _, program := range []string{filepath.Join(folder, "missing"), folder} {
		output := filepath.Join(t.TempDir(), "image.tar")
		if err := run(t.Context(), []string{"--tag", "a:v1", "--output", output, program}); err == nil {
			t.Errorf("%s was put into an image", program)
		}
		if entries, err := os.ReadDir(filepath.Dir(output)); err != nil || len(entries) > 0 {
			t.Errorf("%v was left, error %v", entries, err)
		}
	}
}

// made returns an archive of a program, made in a folder of its own.
func made(t *testing.T, args ...string) []byte {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "program"), "a program")
	output := filepath.Join(folder, "image.tar")
	if err := run(t.Context(), append(args, "--output", output, filepath.Join(folder, "program"))); err != nil {
		t.Fatal(err)
	}
	return read(t, output)
}

func unpack(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func sorted(files map[string][]byte) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func decode(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%q: %v", content, err)
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

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}
