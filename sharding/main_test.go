package sharding_test

import (
	"os"
	"testing"

	"github.com/fleet-runtime/fleet-runtime/sharding"
	"github.com/fleet-runtime/fleet-runtime/test/replicas"
	"github.com/fleet-runtime/fleet-runtime/test/stage"
)

func TestMain(m *testing.M) {
	os.Exit(stage.Run(m, sharding.Pool, func() { replicas.RunProgram(shareByItsClock) }))
}
