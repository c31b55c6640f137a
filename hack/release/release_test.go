package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/spdx/tools-golang/json"

	"github.com/fleet-runtime/fleet-runtime/hack/release/container"
)

var (
	tool     = program{name: "tool", folder: "tool"}
	operator = program{name: "operator", folder: "operator", image: "example.com/operator", manifests: map[string][]string{"install.yaml": {"a.yaml", "b.yaml"}}}
	linux    = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
)

// repository is one with two programs, at a commit of a time.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"LICENSE":          "Do as you like.\n",
		"tool/go.mod":      "module example.com/tool\n\ngo 1.26.0\n",
		"tool/main.go":     "package main\n\nvar released string\n\nfunc main() { println(released) }\n",
		"operator/go.mod":  "module example.com/operator\n\ngo 1.26.0\n",
		"operator/main.go": "package main\n\nfunc main() {}\n",
		"operator/b.yaml":  "kind: Deployment\nimage: example.com/operator:dev\n",
		"operator/a.yaml":  "kind: Namespace\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "A commit"}} {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return root
}

// made is a release of the repository's programs.
func made(t *testing.T, root string, platforms []platform, programs ...program) string {
	t.Helper()
	dist := filepath.Join(t.TempDir(), "dist")
	if err := run(t.Context(), root, dist, "v0.1.0", platforms, programs); err != nil {
		t.Fatal(err)
	}
	return dist
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestTheSameCommitMakesTheSameBytes(t *testing.T) {
	root := repository(t)
	a, b := made(t, root, linux, tool, operator), made(t, root, linux, tool, operator)
	sums := read(t, a, "checksums.txt")
	if other := read(t, b, "checksums.txt"); other != sums {
		t.Errorf("once they are\n%s\nand then\n%s", sums, other)
	}
	for _, name := range []string{
		"tool_v0.1.0_linux_amd64.tar.gz", "tool_v0.1.0_linux_arm64.tar.gz", "tool_v0.1.0_linux_arm64.spdx.json",
		"operator_v0.1.0_image.tar", "operator_v0.1.0_install.yaml", "operator_v0.1.0_linux_amd64.spdx.json",
	} {
		if want := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, a, name))), name); !strings.Contains(sums, want) {
			t.Errorf("the checksum of %s is missing or wrong in\n%s", name, sums)
		}
	}
}

func TestAProgramIsPackedWithTheLicenceAndKnowsItsVersion(t *testing.T) {
	dist := made(t, repository(t), linux[:1], tool)
	file, err := os.Open(filepath.Join(dist, "tool_v0.1.0_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	archive := tar.NewReader(compressed)
	for header, err := archive.Next(); err != io.EOF; header, err = archive.Next() {
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		names[header.Name] = string(content)
	}
	if names["LICENSE"] == "" || !strings.Contains(names["tool"], "v0.1.0") {
		t.Errorf("it has %d files, and the version: %v", len(names), strings.Contains(names["tool"], "v0.1.0"))
	}
}

func TestTheImageHasTheProgramForEachPlatformOfLinux(t *testing.T) {
	dist := made(t, repository(t), append(linux, platform{"darwin", "arm64"}), operator)
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", filepath.Join(dist, "operator_v0.1.0_image.tar"), "-C", folder).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if name := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != "example.com/operator:v0.1.0" {
		t.Errorf("it is called %q", name)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("it has %v: %v", manifest, err)
	}
	for i, descriptor := range manifest.Manifests {
		wantImage(t, index, descriptor, linux[i])
	}
}

// wantImage checks that an image runs the program as nobody.
func wantImage(t *testing.T, index v1.ImageIndex, descriptor v1.Descriptor, on platform) {
	t.Helper()
	image, err := index.Image(descriptor.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != on.arch || descriptor.Platform.Architecture != on.arch || config.Config.User != container.Nobody || config.Config.Entrypoint[0] != "/usr/local/bin/operator" {
		t.Errorf("an image is %+v for %+v", config, descriptor.Platform)
	}
}

func TestTheManifestsAreOneFileWithTheImageOfTheRelease(t *testing.T) {
	dist := made(t, repository(t), linux[:1], operator)
	want := "---\n# a.yaml\nkind: Namespace\n---\n# b.yaml\nkind: Deployment\nimage: example.com/operator:v0.1.0\n"
	if got := read(t, dist, "operator_v0.1.0_install.yaml"); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// TestWhatIsInAProgramIsSaid: the program, and the library of Go itself.
func TestWhatIsInAProgramIsSaid(t *testing.T) {
	dist := made(t, repository(t), linux[:1], tool)
	document, err := json.Read(strings.NewReader(read(t, dist, "tool_v0.1.0_linux_amd64.spdx.json")))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, p := range document.Packages {
		names[p.PackageName] = p.PackageVersion
	}
	if names["tool"] != "v0.1.0" || !strings.HasPrefix(names["std"], "go1.") {
		t.Errorf("it has %v", names)
	}
}

func TestAReleaseThatCannotBeMadeLeavesNothing(t *testing.T) {
	root := repository(t)
	broken := program{name: "broken", folder: "tool", image: "a", manifests: map[string][]string{"install.yaml": {"none.yaml"}}}
	for name, c := range map[string]struct {
		version  string
		programs []program
	}{
		"no version":                {programs: []program{tool}},
		"a version without v":       {version: "1.0.0", programs: []program{tool}},
		"a version with a path":     {version: "v1.0.0/../..", programs: []program{tool}},
		"no manifests":              {version: "v1.0.0", programs: []program{tool, broken}},
		"a program that is missing": {version: "v1.0.0", programs: []program{{name: "none", folder: "none"}}},
	} {
		parent := t.TempDir()
		if err := run(t.Context(), root, filepath.Join(parent, "dist"), c.version, linux[:1], c.programs); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
			t.Errorf("%s: it leaves %v, %v", name, left, err)
		}
	}
	if err := run(t.Context(), root, t.TempDir(), "v1.0.0", linux[:1], []program{tool}); err == nil {
		t.Error("it overwrites a folder that exists")
	}
}

func TestPlatforms(t *testing.T) {
	if all, err := parsePlatforms("linux/amd64,windows/arm64"); err != nil || len(all) != 2 || all[1] != (platform{"windows", "arm64"}) {
		t.Errorf("they are %v, %v", all, err)
	}
	for _, text := range []string{"", "linux", "linux/", "/amd64", "linux/amd64,"} {
		if _, err := parsePlatforms(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
