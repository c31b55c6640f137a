package main

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/mctest"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

var pool mctest.Pool

// TestMain runs the tests or, in a process of theirs, the program or what evaluates overrides for it.
func TestMain(m *testing.M) {
	if isEvaluating() {
		os.Exit(evaluate(memoryOfTests()))
	}
	os.Exit(stage.Run(m, &pool, main))
}

// memoryOfTests returns how much memory overrides get in tests: the detector of races takes several times as much.
func memoryOfTests() uint64 {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return 5 * mostMemory
	}
	return mostMemory
}
