package mctest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgramsAreTakenFromTheBestPlaceThatHasThem(t *testing.T) {
	platform := "-" + runtime.GOOS + "-" + runtime.GOARCH
	const named = "named"
	for name, c := range map[string]struct {
		assets string   // KUBEBUILDER_ASSETS
		have   []string // folders with programs
		want   string   // "" if there is none
	}{
		"the folder that is named": {
			assets: named, have: []string{named, "cache/fleet-runtime/controlplane/v1.40.0" + platform}, want: named,
		},
		"no other if the one that is named lacks them": {
			assets: named, have: []string{"cache/fleet-runtime/controlplane/v1.40.0" + platform},
		},
		"what hack/assets has provided, before what setup-envtest has": {
			have: []string{"cache/fleet-runtime/controlplane/v1.36.3" + platform, "data/kubebuilder-envtest/k8s/1.37.0" + platform},
			want: "cache/fleet-runtime/controlplane/v1.36.3" + platform,
		},
		"the newest version": {
			have: []string{
				"cache/fleet-runtime/controlplane/v1.9.11" + platform,
				"cache/fleet-runtime/controlplane/v1.37.0-rc.1" + platform,
				"cache/fleet-runtime/controlplane/v1.37.0" + platform,
				"cache/fleet-runtime/controlplane/v1.40.0-plan9-arm",
				"cache/fleet-runtime/controlplane/newest" + platform,
			},
			want: "cache/fleet-runtime/controlplane/v1.37.0" + platform,
		},
		"what setup-envtest has installed": {
			have: []string{"data/kubebuilder-envtest/k8s/1.37.0" + platform, "data/kubebuilder-envtest/k8s/1.36.0" + platform},
			want: "data/kubebuilder-envtest/k8s/1.37.0" + platform,
		},
		"nowhere": {},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS != "linux" {
				t.Skip("the folders have other names here")
			}
			root := t.TempDir()
			t.Setenv("XDG_CACHE_HOME", filepath.Join(root, "cache"))
			t.Setenv("XDG_DATA_HOME", filepath.Join(root, "data"))
			t.Setenv("KUBEBUILDER_ASSETS", "")
			if c.assets != "" {
				t.Setenv("KUBEBUILDER_ASSETS", filepath.Join(root, c.assets))
			}
			for _, dir := range c.have {
				installFakePrograms(t, filepath.Join(root, dir))
			}
			got, err := findPrograms(t.Context())
			if (err == nil) != (c.want != "") {
				t.Fatalf("unexpected error, or none: %v", err)
			}
			if want := filepath.Join(root, c.want, "etcd"); err == nil && got.etcd != want {
				t.Errorf("found %s, want %s", got.etcd, want)
			}
		})
	}
}

func TestOnlyFlagsThatTheAPIServerKnowsAreGiven(t *testing.T) {
	const gates = "feature-gates"
	for name, c := range map[string]struct {
		help string
		want []flag
	}{
		"gates with a component": {
			help: "      --profiling   Enable profiling\n      --feature-gates colonSeparated...   Options are:\n" +
				"                kube:APIServerIdentity=true|false (BETA - default=true)\n",
			want: []flag{{"profiling", "false"}, {gates, "APIServerIdentity=false"}},
		},
		"gates without": {
			help: "  --feature-gates mapStringBool\n     APIServerIdentity=true|false (BETA - default=true)\n" +
				"     UnknownVersionInteroperabilityProxy=true|false (ALPHA - default=false)\n",
			want: []flag{{gates, "APIServerIdentity=false"}, {gates, "UnknownVersionInteroperabilityProxy=false"}},
		},
		"names that only begin or end like these": {
			help: "  --profiling-path string\n  MyAPIServerIdentity=true|false\n  mentions --profiling in a sentence\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, leanFlags(c.help), cmp.AllowUnexported(flag{})); diff != "" {
				t.Errorf("flags (-want +got):\n%s", diff)
			}
		})
	}
}

func installFakePrograms(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}
