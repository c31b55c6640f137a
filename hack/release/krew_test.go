package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestAPluginHasAManifestThatKrewTakes goes by what krew asks of a manifest:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/ and https://krew.sigs.k8s.io/docs/developer-guide/develop/naming-guide/
func TestAPluginHasAManifestThatKrewTakes(t *testing.T) {
	p := tool
	p.plugin = programs[1].plugin
	platforms := []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}
	r := release{dist: t.TempDir(), version: "v0.1.0", platforms: platforms}
	for _, on := range platforms {
		if err := os.WriteFile(r.archive(p, on), []byte("the archive for "+on.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.krew(p); err != nil {
		t.Fatal(err)
	}
	dist := r.dist
	var manifest krewPlugin
	if err := yaml.UnmarshalStrict([]byte(read(t, dist, "tool.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" {
		t.Errorf("it is a %s of %s", manifest.Kind, manifest.APIVersion)
	}
	if name := manifest.Metadata.Name; name != "tool" || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(name) || strings.HasPrefix(name, "kubectl-") {
		t.Errorf("the name is %q", name)
	}
	s := manifest.Spec
	if s.Version != "v0.1.0" || s.Homepage == "" || s.Description == "" {
		t.Errorf("the version is %q, the homepage %q, the description %q", s.Version, s.Homepage, s.Description)
	}
	if s.ShortDescription == "" || len(s.ShortDescription) > 50 || strings.ContainsAny(s.ShortDescription, "\r\n") || strings.HasSuffix(s.ShortDescription, ".") {
		t.Errorf("the short description is %q, want a line of at most 50 characters without a full stop", s.ShortDescription)
	}
	if len(s.Platforms) != len(platforms) {
		t.Fatalf("it has %d platforms, want %d", len(s.Platforms), len(platforms))
	}
	for i, on := range platforms {
		wantKrewPlatform(t, dist, s.Platforms[i], on)
	}
}

// wantKrewPlatform checks that a platform leads to its archive.
func wantKrewPlatform(t *testing.T, dist string, got krewPlatform, on platform) {
	t.Helper()
	if l := got.Selector.MatchLabels; len(l) != 2 || l["os"] != on.os || l["arch"] != on.arch {
		t.Errorf("%s: the labels are %v", on, l)
	}
	bin, suffix := "tool", ".tar.gz"
	if on.os == "windows" {
		bin, suffix = "tool.exe", ".zip"
	}
	if got.Bin != bin {
		t.Errorf("%s: the program is %q, want %q", on, got.Bin, bin)
	}
	want := "https://github.com/fleet-runtime/fleet-runtime/releases/download/v0.1.0/tool_v0.1.0_" + on.String() + suffix
	if got.URI != want {
		t.Errorf("%s: it is had from %q, want %q", on, got.URI, want)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, dist, path.Base(want))))); got.SHA256 != sum {
		t.Errorf("%s: the checksum is %q, want %q", on, got.SHA256, sum)
	}
}

func TestOnlyAPluginHasAManifest(t *testing.T) {
	root, p := repository(t), tool
	p.plugin = programs[1].plugin
	for want, released := range map[bool]program{true: p, false: tool} {
		if sums := read(t, made(t, root, linux[:1], released), "checksums.txt"); strings.Contains(sums, "  tool.yaml\n") != want {
			t.Errorf("a plugin: %v. The files are\n%s", want, sums)
		}
	}
}

func TestMcctlIsAPluginForAllPlatformsOfTheRelease(t *testing.T) {
	all, err := parsePlatforms(defaultPlatforms)
	if err != nil || len(all) != 6 {
		t.Errorf("there are %d platforms, %v; want linux, darwin and windows on amd64 and arm64", len(all), err)
	}
	if programs[1].name != "mcctl" || programs[1].plugin == nil || len(programs[1].systems) > 0 {
		t.Errorf("it is %+v", programs[1])
	}
}
