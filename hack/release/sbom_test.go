package main

import (
	"runtime/debug"
	"testing"
)

// TestAModuleIsCalledWhatItIs: scanners for faults find it by its package URL.
func TestAModuleIsCalledWhatItIs(t *testing.T) {
	r := release{version: "v0.1.0"}
	for want, m := range map[string]*debug.Module{
		"pkg:golang/stdlib@1.26.8":                       {Path: "std", Version: "go1.26.8"},
		"pkg:golang/example.com/a@v1.0.0":                {Path: "example.com/a", Version: "v1.0.0"},
		"pkg:golang/example.com/a@v2.0.0%2Bincompatible": {Path: "example.com/a", Version: "v2.0.0+incompatible"},
		"pkg:golang/example.com/fork@v1.0.1":             {Path: "example.com/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1"}},
		"pkg:golang/" + of + "@v0.1.0":                   {Path: of, Version: "v0.0.0", Replace: &debug.Module{Path: "../..", Version: "(devel)"}},
	} {
		if got := locator(r.origin(m)); got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
}
