package main

import (
	"runtime/debug"
	"strings"
)

const devel = "(devel)"

// released is the version of a program that make release built: it comes from a checkout, so its module has none.
var released string

// version is that of this plugin's module, which has the versions of fleet-runtime.
func version() string {
	if released != "" {
		return released
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return devel
	}
	return info.Main.Version
}

// fleetRuntimeVersion is the version that a project gets by default. A checkout, changed or not, is in no module proxy.
func fleetRuntimeVersion() string {
	if v := version(); v != devel && !strings.Contains(v, "+dirty") {
		return v
	}
	return ""
}
